//! The `#[every_arch]` test attribute.
