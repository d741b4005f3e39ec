//! Resource-exhaustion attacks on a whole stack: floods, clients that pin memory, segments made to be expensive. Each
//! test states the service that honest clients still get, and a bound on the cost of the attack. All in virtual time.

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
