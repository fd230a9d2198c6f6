//! Keeps the generated pages under `docs/reference/` equal to the tables of settings and
//! of routes.
#![expect(
    clippy::disallowed_methods,
    reason = "the pages lie on disk, and a variable says to write them anew"
)]

use std::path::Path;

use afresh_core::config::{reference, schema};
use afresh_core::control::document;

#[test]
fn the_reference_is_current() {
    check("configuration.md", &reference());
}

#[test]
fn the_schema_is_current() {
    check("afresh.schema.json", &format!("{:#}\n", schema()));
}

#[test]
fn the_description_of_the_api_is_current() {
    check("openapi.json", &format!("{:#}\n", document()));
}

fn check(name: &str, current: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    let path = folder.join(name);
    if std::env::var("AFRESH_TEST_BLESS").is_ok() {
        std::fs::write(&path, current).expect("the page can be written");
    }
    // A checkout on Windows may have its own line ends.
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept.replace("\r\n", "\n") == current,
        "`docs/reference/{name}` is out of date: \
         run `AFRESH_TEST_BLESS=1 cargo test -p afresh-core --test reference` and commit it"
    );
}
