//! Files that are generated from the code and committed. `TOWPATH_BLESS=1 cargo test -p towpath-server --test http generated` writes
//! them anew.

use std::path::{Path, PathBuf};

fn check(path: &str, generated: &str) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("TOWPATH_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == generated, "{} is not what the code says: run this test with TOWPATH_BLESS=1 and commit", path.display());
}

#[test]
fn the_committed_description_of_the_api_is_that_of_the_routes() {
    check("api/openapi.json", &towpath_server::http::openapi::text());
}

#[test]
fn the_committed_list_of_errors_is_that_of_the_code() {
    let text = format!(
        "# Errors\n\n\
         Every error of the HTTP API has one body:\n\n\
         ```json\n\
         {{\"error\": {{\"code\": \"out_of_range\", \"message\": \"...\", \"field\": \"timeout_ms\", \"hint\": \"...\", \"details\": {{\"min\": 1}}, \"effect\": \"none\", \"request_id\": \"...\"}}}}\n\
         ```\n\n\
         `code` is for programs and does not change between versions. `field` is the field of the request that has to change, if one is at\n\
         fault. `effect` is `none` when certainly nothing happened, and `unknown` when the request may have had an effect: then ask by id, or\n\
         repeat it with the same id. `request_id` also stands in the `x-request-id` header and in the server's log.\n\n\
         {}",
        towpath_server::http::codes::table()
    );
    check("docs/errors.md", &text);
}
