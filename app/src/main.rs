//! The `afresh` binary.
fn main() {}
