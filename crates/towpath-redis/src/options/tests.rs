//! Which URLs are understood, how they are written again, and what is said of the others.

use super::*;

fn parsed(url: &str) -> RedisOptions {
    RedisOptions::parse(url).unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn refusal(url: &str) -> InvalidRedisUrl {
    match RedisOptions::parse(url) {
        Ok(options) => panic!("'{url}' was understood as {options:?}"),
        Err(refusal) => refusal,
    }
}

#[test]
fn a_url_that_is_understood_is_written_again_without_credentials() {
    let written = [
        ("redis://localhost", "redis://localhost:6379"),
        ("redis://localhost/", "redis://localhost:6379"),
        ("REDIS://localhost:6380/0", "redis://localhost:6380"),
        ("valkey://10.0.0.1:7000/5", "redis://10.0.0.1:7000/5"),
        ("rediss://cache.example", "rediss://cache.example:6379"),
        ("valkeys://cache.example", "rediss://cache.example:6379"),
        ("redis://[::1]", "redis://[::1]:6379"),
        ("redis://[fe80::2]:6380/1", "redis://[fe80::2]:6380/1"),
        ("redis://:secret@localhost", "redis://localhost:6379"),
        ("redis://app:secret@localhost/3", "redis://localhost:6379/3"),
        ("redis://app@localhost", "redis://localhost:6379"),
        ("redis://h?prefix=team:a", "redis://h:6379?prefix=team:a"),
        ("redis://h?prefix=towpath", "redis://h:6379"),
        ("redis://h/1?durability=replicated&prefix=x", "redis://h:6379/1?prefix=x&durability=replicated"),
        ("redis://h?durability=replicated&replicas=2", "redis://h:6379?durability=replicated&replicas=2"),
        ("redis://h?replicas=1", "redis://h:6379"),
        ("rediss://h?tls_ca=/etc/my%20ca.pem", "rediss://h:6379?tls_ca=/etc/my%20ca.pem"),
        ("rediss://h?tls_ca=/etc/a@b.pem", "rediss://h:6379?tls_ca=/etc/a%40b.pem"),
        ("rediss://h?tls_insecure=true", "rediss://h:6379?tls_insecure=true"),
        ("rediss://h?tls_insecure=false", "rediss://h:6379"),
        ("redis+sentinel://a,b:5000,[::1]/mymaster", "redis+sentinel://a:26379,b:5000,[::1]:26379/mymaster"),
        ("rediss+sentinel://u:p@a/my%2Fmaster/4", "rediss+sentinel://a:26379/my%2Fmaster/4"),
        ("valkey+sentinel://a/m", "redis+sentinel://a:26379/m"),
        ("redis+cluster://a:7000,b:7001", "redis+cluster://a:7000,b:7001"),
        ("rediss+cluster://u:p@a/0", "rediss+cluster://a:6379"),
        ("valkeys+cluster://a?durability=memory", "rediss+cluster://a:6379?durability=memory"),
    ];
    for (url, canonical) in written {
        let options = parsed(url);
        assert_eq!(options.to_string(), canonical, "{url}");
        let again = RedisOptions { username: options.username.clone(), password: options.password.clone(), ..parsed(canonical) };
        assert_eq!(again, options, "the canonical form of {url} means something else");
    }
}

#[test]
fn user_and_password_are_decoded() {
    let said = |url: &str| {
        let options = parsed(url);
        (options.username, options.password)
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(said("redis://h"), (None, None));
    assert_eq!(said("redis://:pw@h"), (None, some("pw")));
    assert_eq!(said("redis://user@h"), (some("user"), None));
    assert_eq!(said("redis://user:@h"), (some("user"), None));
    assert_eq!(said("redis://us%3Aer:p%40%2F%25%C3%A4w@h"), (some("us:er"), some("p@/%äw")));
    assert_eq!(said("redis://user:a:b@c@h"), (some("user"), some("a:b@c")), "only the last @ ends a password, and colons belong to it");
}

#[test]
fn a_place_has_all_that_the_url_says() {
    let address = |host: &str, port| Address { host: host.to_owned(), port };
    let sentinel = parsed("redis+sentinel://:pw@a,b:5000/mymaster/2");
    let sentinels = vec![address("a", 26379), address("b", 5000)];
    assert_eq!(sentinel.place, Place::Sentinel { sentinels, master: "mymaster".to_owned() });
    assert_eq!((sentinel.database, sentinel.tls), (2, None));
    assert_eq!(parsed("redis+cluster://a,b:7000").place, Place::Cluster(vec![address("a", 6379), address("b", 7000)]));
    assert_eq!(parsed("redis://[::1]:1").place, Place::Standalone(address("::1", 1)));
    let tls = parsed("rediss://h?tls_ca=ca.pem").tls;
    assert_eq!(tls, Some(Tls { ca_file: Some("ca.pem".to_owned()), insecure: false }));
}

#[test]
fn a_mistake_is_answered_with_what_to_write() {
    let hints = [
        ("", "begin with redis://"),
        ("localhost:6379", "begin with redis://"),
        ("http://localhost", "begin with redis://"),
        ("redis+shard://a", "begin with redis://"),
        ("sqlite+cluster://a", "begin with redis://"),
        ("redis://", "the host is missing"),
        ("redis://:6379", "the host is missing"),
        ("redis://@h", "no user and no password"),
        ("redis://:@h", "no user and no password"),
        ("redis://h:0", "no number from 1 to 65535"),
        ("redis://h:70000", "no number from 1 to 65535"),
        ("redis://h:", "no number from 1 to 65535"),
        ("redis://::1", "in brackets"),
        ("redis://[::1", "closing bracket"),
        ("redis://[::1]x", "only :port may follow"),
        ("redis://[zz]", "no IPv6 address"),
        ("redis://a b", "no name of a host"),
        ("redis://h/two", "names no database"),
        ("redis://h/-1", "names no database"),
        ("redis://h/1/2", "names no database"),
        ("redis://a,b", "redis+sentinel://host1,host2/mastername or redis+cluster://"),
        ("redis+cluster://a/1", "only database 0"),
        ("redis+cluster://a,,b", "the host is missing"),
        ("redis+sentinel://a", "name of the master is missing"),
        ("redis+sentinel://a//1", "name of the master is missing"),
        ("redis+sentinel://a/m/x", "names no database"),
        ("redis://h?shards=3", "there is no option 'shards'"),
        ("redis://h?prefix=", "the option prefix has no value"),
        ("redis://h?prefix={a}", "a prefix consists of"),
        ("redis://h?durability=twice", "write memory, everysec, always or replicated"),
        ("redis://h?durability=fsync", "write memory, everysec, always or replicated"),
        ("redis://h?replicas=0", "a number from 1 to 100"),
        ("redis://h?tls_ca=/ca.pem", "begin with rediss://"),
        ("redis://h?tls_insecure=true", "begin with rediss://"),
        ("rediss://h?tls_insecure=yes", "true or false"),
        ("rediss://h?tls_ca=a&tls_insecure=true", "contradict"),
        ("redis://u:100%@h", "percent-encoded"),
        ("redis://u:%ff@h", "no UTF-8"),
    ];
    for (url, hint) in hints {
        let refusal = refusal(url);
        assert!(refusal.hint.contains(hint), "'{url}' was answered with '{}'", refusal.hint);
    }
}

#[test]
fn no_part_of_a_password_is_shown() {
    let with_a_mistake = [
        "redis://u:hunter2@h:x",
        "redis://u:/hunter2@h",
        "redis://:hun/ter2@h",
        "redis://:hunter2?@h",
        "hunter2@h",
        "redis://:12?hunter2@h",
        "redis://u:hunter2?prefix=x@h",
    ];
    for url in with_a_mistake {
        let said = refusal(url).to_string();
        assert!(!said.contains("hun") && !said.contains("ter2"), "{said}");
    }
    let options = parsed("redis://app:hunter2@h");
    for said in [format!("{options:?}"), format!("{options:#?}"), options.to_string()] {
        assert!(!said.contains("hunter2"), "{said}");
    }
    assert!(format!("{options:?}").contains("hidden"));
}
