//! What a server's settings are worth, and what its replicas' answers mean.

use std::collections::BTreeMap;

use super::*;
use crate::about::Info;

fn about(config: Option<&[(&str, &str)]>, info: Option<&str>) -> About {
    let owned = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    About { config: config.map(owned).map(|settings| vec![settings]), info: info.map(|text| vec![Info::parse(text)]) }
}

fn keeping(level: Durability, source: Source, replicas: u32) -> Keeping {
    Keeping { level, source, replicas: Some(replicas), has_waitaof: false }
}

fn wanted(level: Durability, replicas: u32) -> Wanted {
    Wanted { level: Some(level), replicas, must_keep: false }
}

#[test]
fn settings_are_worth_what_they_make_the_server_do() {
    use Durability::{Always, Everysec, Memory};
    const ON: &str = "aof_enabled:1";
    const OFF: &str = "aof_enabled:0";
    let yes = |fsync| [("appendonly", "yes"), ("appendfsync", fsync), ("no-appendfsync-on-rewrite", "no")];
    let lax = [("appendonly", "yes"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "yes")];
    let off = [("appendonly", "no"), ("appendfsync", "always")];
    let cases: [(&str, About, Durability, Source); 10] = [
        ("no log", about(Some(&off), Some(OFF)), Memory, Source::Read),
        ("a log each second", about(Some(&yes("everysec")), Some(ON)), Everysec, Source::Read),
        ("a log always", about(Some(&yes("always")), Some(ON)), Always, Source::Read),
        ("a log always, but not while it is rewritten", about(Some(&lax), Some(ON)), Everysec, Source::Read),
        ("a log that the kernel writes", about(Some(&yes("no")), Some(ON)), Memory, Source::Read),
        ("a log that is set but not on", about(Some(&yes("always")), Some(OFF)), Memory, Source::Read),
        ("no CONFIG, a log", about(None, Some(ON)), Everysec, Source::Assumed),
        ("no CONFIG, no log", about(None, Some(OFF)), Memory, Source::Read),
        ("CONFIG only", about(Some(&yes("always")), None), Always, Source::Read),
        ("nothing may be looked at", about(None, None), Memory, Source::Assumed),
    ];
    for (name, about, level, source) in cases {
        let kept = Keeping::of(&about, false);
        assert_eq!((kept.level, kept.source), (level, source), "{name}");
    }
}

#[test]
fn the_server_of_a_cluster_that_keeps_least_decides() {
    let infos = ["aof_enabled:1\nslave0:state=online", "aof_enabled:0"];
    let about = About { info: Some(infos.iter().map(|text| Info::parse(text)).collect()), config: None };
    let kept = Keeping::of(&about, false);
    assert_eq!((kept.level, kept.replicas), (Durability::Memory, Some(0)));
}

#[test]
fn what_is_asked_for_and_not_given_is_refused_with_what_to_change() {
    use Durability::{Always, Everysec, Fsync, Memory, Replicated};
    let refusals = [
        (keeping(Memory, Source::Read, 0), wanted(Everysec, 1), "appendonly yes"),
        (keeping(Everysec, Source::Read, 0), wanted(Always, 1), "appendfsync always"),
        (keeping(Always, Source::Read, 0), wanted(Fsync, 1), "ask for 'always'"),
        (keeping(Memory, Source::Read, 1), wanted(Replicated, 1), "empty the replicas"),
        (keeping(Everysec, Source::Read, 1), wanted(Replicated, 2), "replicas=N"),
    ];
    for (kept, wanted, says) in refusals {
        let refused = kept.grant(wanted).unwrap_err().to_string();
        assert!(refused.contains(says), "{wanted:?}: {refused}");
    }
}

#[test]
fn what_is_given_is_named_and_what_nobody_can_see_is_believed() {
    use Durability::{Always, Everysec, Memory, Replicated};
    let grants = [
        (keeping(Always, Source::Read, 0), wanted(Everysec, 1), Always),
        (keeping(Everysec, Source::Read, 0), Wanted { level: None, replicas: 1, must_keep: false }, Everysec),
        (keeping(Memory, Source::Read, 0), wanted(Memory, 1), Memory),
        (keeping(Everysec, Source::Assumed, 0), wanted(Always, 1), Always),
        (keeping(Everysec, Source::Read, 2), wanted(Replicated, 2), Replicated),
    ];
    for (kept, wanted, level) in grants {
        assert_eq!(kept.grant(wanted), Ok(level), "{kept:?} {wanted:?}");
    }
    let blind = Keeping { replicas: None, ..keeping(Memory, Source::Assumed, 0) };
    assert_eq!(blind.grant(wanted(Replicated, 1)), Ok(Replicated), "WAIT will tell");
}

fn words(command: &Cmd) -> String {
    let packed = String::from_utf8(command.get_packed_command()).unwrap();
    packed.split("\r\n").filter(|line| !line.is_empty() && !line.starts_with(['*', '$'])).collect::<Vec<_>>().join(" ")
}

#[test]
fn only_replicated_makes_a_write_wait_and_for_disks_only_where_they_are_fast() {
    let sent = |kept: Keeping, wanted: Wanted| {
        let guarantee = Guarantee::new(wanted, kept, true).unwrap();
        guarantee.commands_after_write("mark").iter().map(words).collect::<Vec<_>>()
    };
    let everysec = keeping(Durability::Everysec, Source::Read, 2);
    let always = Keeping { has_waitaof: true, ..keeping(Durability::Always, Source::Read, 2) };
    assert_eq!(sent(everysec, wanted(Durability::Everysec, 1)), Vec::<String>::new());
    assert_eq!(sent(everysec, wanted(Durability::Replicated, 2)), ["SET mark 1 PX 60000", "WAIT 2 1000"]);
    assert_eq!(sent(Keeping { has_waitaof: true, ..everysec }, wanted(Durability::Replicated, 2)), ["SET mark 1 PX 60000", "WAIT 2 1000"]);
    assert_eq!(sent(always, wanted(Durability::Replicated, 2)), ["SET mark 1 PX 60000", "WAITAOF 1 2 1000"]);
}

#[test]
fn fewer_confirmations_than_asked_for_are_never_a_success() {
    let guarantee = Guarantee::new(wanted(Durability::Replicated, 2), keeping(Durability::Everysec, Source::Read, 2), true).unwrap();
    let both = |own, replicas| Value::Array(vec![Value::Int(own), Value::Int(replicas)]);
    for enough in [Value::Int(2), Value::Int(3), both(1, 2)] {
        assert_eq!(guarantee.judge(&[enough]), Ok(Durability::Replicated));
    }
    for (reply, says) in
        [(Value::Int(1), "1 of 2 replica(s)"), (Value::Int(0), "0 of 2"), (both(0, 2), "own disk"), (Value::Nil, "cannot be read")]
    {
        match guarantee.judge(&[reply]) {
            Err(StoreError::Unknown(text)) => assert!(text.contains(says) && text.contains("'everysec'"), "{text}"),
            other => panic!("{says}: {other:?}"),
        }
    }
    assert!(matches!(guarantee.judge(&[]), Err(StoreError::Unknown(_))), "no answer is no confirmation");
}

#[test]
fn a_server_that_came_back_with_less_takes_nothing_new_and_what_ends_there_names_the_lower_level() {
    let guarantee = Guarantee::new(wanted(Durability::Always, 1), keeping(Durability::Always, Source::Read, 0), true).unwrap();
    assert_eq!((guarantee.judge(&[]), guarantee.admit()), (Ok(Durability::Always), Ok(())));
    *guarantee.keeping.write().unwrap() = keeping(Durability::Memory, Source::Read, 0);
    assert_eq!((guarantee.level(), guarantee.judge(&[])), (Durability::Memory, Ok(Durability::Memory)));
    let refused = guarantee.admit();
    assert!(
        matches!(&refused, Err(StoreError::Unavailable(StoreTrouble::BelowMinimum(text))) if text.contains("appendfsync always")),
        "{refused:?}"
    );
}

#[test]
fn new_work_is_refused_at_memory_only_if_the_operator_has_not_accepted_it_and_it_is_certain() {
    use Durability::{Everysec, Memory};
    let strict = Wanted { level: None, replicas: 1, must_keep: true };
    for (kept, wanted, refuses) in [
        (keeping(Memory, Source::Read, 0), strict, true),
        (keeping(Memory, Source::Assumed, 0), strict, false),
        (keeping(Everysec, Source::Read, 0), strict, false),
        (keeping(Memory, Source::Read, 0), Wanted { level: Some(Memory), ..strict }, false),
        (keeping(Memory, Source::Read, 0), Wanted { must_keep: false, ..strict }, false),
    ] {
        assert_eq!(kept.refuses_new_work(wanted).is_some(), refuses, "{kept:?} {wanted:?}");
    }
}
