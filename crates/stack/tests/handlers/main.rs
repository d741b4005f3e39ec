//! Handlers (`stack::socket::handler`), under every architecture and over both families: the order of callbacks, the outbox
//! that an answer joins, panics, refused calls, messages between connections, a change of architecture.

mod calls;
mod messages;
mod order;
mod outbox;
mod panics;
mod scene;
mod switching;
