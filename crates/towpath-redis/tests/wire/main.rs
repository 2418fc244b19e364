//! Towpath beside callers and workers that know nothing of it: small programs in another language, written from the seeds' text.
//!
//! | room | what is shown |
//! |---|---|
//! | `pairings` | legacy and new callers with legacy and new workers |
//! | `entries` | entries and replies as legacy peers write them, with what they leave out |
//! | `registry` | legacy workers as they stand in the registry |
//! | `groups` | the consumer group, which a legacy worker makes at the end of the stream and destroys when it leaves |
//! | `strangers` | legacy peers that acknowledge, claim, copy and trim what is not theirs |
//! | `alone` | functions that only legacy workers serve, after ours have left |
//! | `bounds` | long histories, many entries, large entries, many calls at once |
//! | `config` | the shared configuration |
//! | `histories` | random histories of all of them together |
//! | `keys_page` | the page about keys |
//! | `rig` | a server, workers of ours that count, and the legacy peers as processes |

mod alone;
mod bounds;
mod config;
mod entries;
mod groups;
mod histories;
mod keys_page;
mod pairings;
#[cfg(debug_assertions)]
#[path = "../planted/mod.rs"]
mod planted;
mod registry;
mod rig;
mod strangers;

#[cfg(debug_assertions)]
planted::planted! {
    rule_7_an_entry_that_is_not_complete_is_noticed:
        "legacy/export.lua", "unpack(ARGV, at + 3, at + 2 + words)" => "unpack(ARGV, at + 3, at + 2 + 12)",
        "pairings::a_legacy_worker_is_sent_all_seven_fields_and_a_list_of_the_calls_own";
    rule_7_a_group_that_is_made_again_from_0_is_noticed:
        "legacy/group.lua", "is_after(last, oldest) then start = oldest end" => "true then start = '0-0' end",
        "bounds::a_long_history_is_not_given_to_a_legacy_worker";
    rule_7_a_group_that_is_made_again_before_the_watermark_is_noticed:
        "legacy/group.lua", "is_after(watermark, start) then start = watermark end" => "is_after(watermark, start) then start = start end",
        "groups::a_group_that_is_made_again_begins_behind_the_entries_that_were_delivered";
    rule_7_an_entry_that_outlives_its_call_is_noticed:
        "calls/apply.lua", "redis.pcall('XDEL', ARGV[a + 2], ARGV[a + 4])" => "",
        "groups::the_entry_of_an_exported_call_goes_with_the_end_of_the_call";
}
