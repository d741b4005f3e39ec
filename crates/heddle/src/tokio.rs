//! tokio adapters.
