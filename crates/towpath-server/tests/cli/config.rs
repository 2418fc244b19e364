//! `towpath config`: read, written and watched; nothing vanishes from it by accident.

use towpath_redis_testing::RedisServer;

use crate::support::{Beside, Server};

#[test]
fn the_configuration_is_read_written_and_watched() {
    let server = Server::start();
    assert_eq!(server.run(&["config", "get"]).exits(0).says("it was never set").stdout, "null\n");
    let watcher = Beside::start(server.command(&["config", "watch", "--json"]));
    watcher.event("the present one", |config| config["version"] == 0);
    server.run(&["config", "set", r#"{"mode": "careful"}"#]).exits(0).prints("careful");
    assert_eq!(watcher.event("the change", |config| config["version"] == 1)["value"]["mode"], "careful");
    server.run(&["config", "set", r#"{"mode":2}"#, "--if-version", "0"]).exits(5);
    assert_eq!(server.run(&["config", "set", r#"{"mode":-1.50}"#, "--if-version", "1", "--json"]).exits(0).json()["version"], 2);
    assert_eq!(server.run(&["config", "get"]).exits(0).stdout, "{\"mode\":-1.50}\n");
    server.run(&["config", "set", "{oops"]).exits(2);
}

#[test]
fn members_vanish_only_where_that_is_asked_for() {
    let server = Server::start();
    server.run(&["limit", "put", "mail", "--rule", "r=gcra:10/1s"]).exits(0);
    let before = server.run(&["config", "get", "--json"]).exits(0).json();
    let refused = server.run(&["config", "set", r#"{"mode":"careful"}"#]).exits(2).says("'limit_policies'").says("--replace");
    assert_eq!(refused.stdout, "");
    let error = server.run(&["config", "set", r#"{"mode":"careful"}"#, "--if-version", "1", "--json"]).exits(2).error();
    assert_eq!((&error["code"], &error["details"]["missing"][0]), (&"members_missing".into(), &"limit_policies".into()));
    assert_eq!(server.run(&["config", "get", "--json"]).exits(0).json(), before);

    let mut longer = before["value"].clone();
    longer["mode"] = "careful".into();
    server.run(&["config", "set", &longer.to_string()]).exits(0);
    server.run(&["limit", "peek", "mail"]).exits(0);
    server.run(&["config", "set", r#"{"mode":"bold"}"#, "--replace"]).exits(0);
    assert_eq!(server.run(&["config", "get"]).exits(0).stdout, "{\"mode\":\"bold\"}\n");
}

#[test]
fn a_value_that_is_no_object_is_refused() {
    let server = Server::start();
    for value in ["2", "[1]", "null", r#""text""#] {
        server.run(&["config", "set", value, "--replace"]).exits(2).says("JSON object");
    }
    server.run(&["config", "set", r#"{"limit_policies":[1]}"#]).exits(2).says("limit_policies");
    assert_eq!(server.run(&["config", "get", "--json"]).exits(0).json()["version"], 0);
}

#[test]
fn members_of_legacy_peers_need_not_be_repeated_on_redis_because_they_stay() {
    let redis = RedisServer::build().append_only("everysec").line("maxmemory 100mb").start();
    redis.cli(&["SET", "function:global_config", r#"{"queueMode":true}"#]);
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(folder, &["serve", "--store", &redis.url(), "--listen", "127.0.0.1:0"]);
    server.run(&["config", "set", r#"{"mode":"careful"}"#]).exits(0).prints(r#""queueMode":true"#);
    server.run(&["limit", "put", "mail", "--rule", "r=gcra:10/1s"]).exits(0);
    let error = server.run(&["config", "set", r#"{"mode":"bold"}"#, "--json"]).exits(2).error();
    assert_eq!(error["details"]["missing"], serde_json::json!(["limit_policies"]));
}
