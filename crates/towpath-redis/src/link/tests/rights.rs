//! Passwords, users with few rights, and encryption.

use redis::Value;
use towpath_redis_testing::RedisServer;

use super::{ask, open, try_open, unavailable};

fn with_credentials(server: &RedisServer, credentials: &str) -> String {
    server.url().replacen("://", &format!("://{credentials}@"), 1)
}

#[tokio::test]
async fn a_password_opens_and_a_wrong_one_is_refused_without_being_shown() {
    let server = RedisServer::build().password("open%sesame").start();
    let link = open(&with_credentials(&server, ":open%25sesame")).await;
    assert_eq!(ask(&link, "SET a 1").await, Ok(Value::Okay));
    let said = unavailable(try_open(&with_credentials(&server, ":hunter2")).await);
    assert!(said.contains("WRONGPASS") && said.contains("check those in the URL"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    let said = unavailable(try_open(&server.url()).await);
    assert!(said.contains("NOAUTH") && said.contains("redis://user:password@host"), "{said}");
}

#[tokio::test]
async fn a_user_may_do_what_its_rules_say() {
    let server = RedisServer::build().user("app", "on >secret ~* &* +@all -set").user("none", "on nopass ~* +get").start();
    let link = open(&with_credentials(&server, "app:secret")).await;
    assert_eq!(ask(&link, "GET a").await, Ok(Value::Nil));
    let said = unavailable(ask(&link, "SET a 1").await);
    assert!(said.contains("NOPERM") && said.contains("--print-acl"), "{said}");
    link.exclusive("a").await.unwrap();
    link.subscribed("news").await.unwrap();
    let link = open(&with_credentials(&server, "none")).await;
    assert_eq!(ask(&link, "GET a").await, Ok(Value::Nil), "a user without any right but this one is of use");
    let said = unavailable(link.exclusive("a").await.map(|_| ()));
    assert!(said.contains("CLIENT ID"), "{said}");
    let said = unavailable(link.subscribed("news").await.map(|_| ()));
    assert!(said.contains("NOPERM"), "{said}");
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let server = RedisServer::build().databases(2).start();
    open(&format!("{}/1", server.url())).await;
    let said = unavailable(try_open(&format!("{}/2", server.url())).await);
    assert!(said.contains("DB index is out of range"), "{said}");
}

#[tokio::test]
async fn an_encrypted_server_is_trusted_by_its_authority_only() {
    let server = RedisServer::build().password("secret").tls().start();
    let link = open(&with_credentials(&server, ":secret")).await;
    assert_eq!(ask(&link, "SET a 1").await, Ok(Value::Okay));
    link.exclusive("a").await.unwrap();
    link.subscribed("news").await.unwrap();
    let port = server.port();
    let by_name = format!("rediss://:secret@localhost:{port}?tls_ca={}", server.ca_file().unwrap().display());
    assert_eq!(ask(&open(&by_name).await, "GET a").await, Ok(Value::BulkString(b"1".to_vec())));
    unavailable(try_open(&format!("rediss://:secret@127.0.0.1:{port}")).await);
    let other = RedisServer::build().tls().start();
    let wrong = format!("rediss://:secret@127.0.0.1:{port}?tls_ca={}", other.ca_file().unwrap().display());
    let said = unavailable(try_open(&wrong).await);
    assert!(said.contains("certificate"), "{said}");
    let anybody = format!("rediss://:secret@127.0.0.1:{port}?tls_insecure=true");
    assert_eq!(ask(&open(&anybody).await, "GET a").await, Ok(Value::BulkString(b"1".to_vec())));
    unavailable(try_open(&format!("redis://:secret@127.0.0.1:{port}")).await);
}

#[tokio::test]
async fn a_file_without_an_authority_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    for content in [None, Some(""), Some("nonsense")] {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let said = unavailable(try_open(&format!("rediss://127.0.0.1:1?tls_ca={}", file.display())).await);
        assert!(said.contains("ca.pem") && said.contains("tls_ca"), "{said}");
    }
}
