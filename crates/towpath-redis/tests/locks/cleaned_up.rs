//! An execution failed: whatever it held is freed, by one of ours or by an old workflow, and nothing of anybody else.

use towpath::locks::{Acquired, Cleanup, HeldScope, LockWait};
use towpath::{Payload, SetConfig};

use crate::old_workflow::{Inputs, counter, meta};
use crate::rig::{Rig, scope};

#[tokio::test]
async fn a_failed_execution_is_cleaned_up_in_dynamic_and_registered_scopes_and_once() {
    let rig = Rig::start();
    let (towpath, old) = (rig.towpath().await, rig.old_workflow().await);
    let value = Payload::from_json(r#"{"lock_scopes":["registered","foreign","never"]}"#);
    towpath.set_config(SetConfig { value, if_version: None }).await.expect("the server is there");
    let mut guards = Vec::new();
    for (what, execution) in [("d1", "e-4711"), ("d2", "e-4711"), ("d3", "e-4711"), ("foreign", "e-4712")] {
        let acquired = towpath.lock(what).execution_id(execution).wait(LockWait::No).acquire().await;
        let Ok(Acquired::Granted(guard)) = acquired else { panic!("{what} is free: {acquired:?}") };
        guards.push(guard);
    }
    // The execution of an old workflow is `e-` and its lock id.
    for what in ["registered", "unregistered"] {
        old.acquire(&Inputs::new(what, "4711")).await.expect("it is free");
    }
    let cleaned = towpath.error_handler_lock_cleanup("e-4711", Vec::new()).await.expect("the server is there");
    assert_eq!((cleaned.cleaned, cleaned.cleaned_count, cleaned.scopes.join(" ").as_str()), (true, 4, "d1 d2 d3 registered"));
    assert_eq!((old.left_ms(&counter("registered")).await, old.left_ms(&meta("registered")).await), (-2, -2));
    let again = towpath.error_handler_lock_cleanup("e-4711", Vec::new()).await.expect("the server is there");
    assert_eq!((again.cleaned, again.cleaned_count), (false, 0));
    assert_eq!(again.reason.as_deref(), Some("no locks owned by failed execution"));
    assert_eq!(guards[3].reason(), None);
    assert!(old.attempt(&Inputs::new("foreign", "late")).await > 1, "it is held still");

    let all = Cleanup { scan: true, ..Cleanup::default() };
    let found = towpath.cleanup_execution("e-4711", all).await.expect("the server is there").scopes;
    assert_eq!(found, [HeldScope::Lock(scope("unregistered"))]);
}
