//! Attacks that wear a whole stack out: floods, clients that hold on to memory, segments made to be expensive. Each
//! test says what honest clients still get, and what the attack may cost at most. All in virtual time.

mod channel;
mod clients;
mod cost;
mod flood;
mod held;
mod holders;
mod link;
mod peers;
mod segments;
mod slow;
mod storm;
mod tables;
