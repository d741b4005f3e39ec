//! (contract: ARCHITECTURE.md)
