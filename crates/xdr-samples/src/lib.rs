//! Specifications in XDR, compiled by `xdr-build` in the build script as a user's would be.

#![forbid(unsafe_code)]

/// The file of RFC 4506 section 7.
pub mod file {
    include!(concat!(env!("OUT_DIR"), "/file.rs"));
}

/// Every kind of declaration, and names that Rust has reserved.
pub mod kinds {
    include!(concat!(env!("OUT_DIR"), "/kinds.rs"));
}

/// Messages as in Schmidt & Suda (1995) section 3.2: arrays of variable size, of structures with integral and real
/// values.
pub mod samples {
    include!(concat!(env!("OUT_DIR"), "/samples.rs"));
}
