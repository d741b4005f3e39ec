//! Compiles the specifications of this package.

fn main() {
    for name in ["file", "kinds", "samples"] {
        xdr_build::compile(format!("specifications/{name}.x"));
    }
}
