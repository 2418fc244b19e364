//! The pictures and sounds of a merged message.

use serde_json::value::RawValue;

use super::Parts;
use crate::batch::fields::{Fields, Object, array, elements, is_truthy};
use crate::batch::{MediaMerge, Settings};

pub(super) fn merged(settings: &Settings, parts: &Parts<'_>) -> String {
    match settings.merge.media_merge {
        MediaMerge::First => parts.base().fields.get("media").filter(|media| is_truthy(media)).map_or("{}", RawValue::get).to_owned(),
        MediaMerge::Concat => joined(parts),
    }
}

/// Lists are joined in order, a flag is set if any message has it set; of anything else the base's counts, or the first there is.
fn joined(parts: &Parts<'_>) -> String {
    let of = |fields: &Fields<'_>| fields.get("media").map(|media| media.get().to_owned());
    let base_first = std::iter::once(parts.base).chain((0..parts.messages.len()).filter(|place| *place != parts.base));
    let texts: Vec<(usize, String)> = base_first.filter_map(|place| Some((place, of(&parts.messages[place].fields)?))).collect();
    let mut all: Vec<(usize, Fields<'_>)> =
        texts.iter().filter_map(|(place, text)| Some((*place, Fields::parse(text.as_bytes()).ok()?))).collect();
    let mut names: Vec<String> = Vec::new();
    for (name, _) in all.iter().flat_map(|(_, media)| media.iter()) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    let first_of = |name: &str| all.iter().find_map(|(_, media)| media.given(name)).map(|value| value.get().to_owned());
    let first: Vec<Option<String>> = names.iter().map(|name| first_of(name)).collect();
    all.sort_by_key(|(place, _)| *place);
    let mut merged = Object::new();
    for (name, first) in names.iter().zip(first) {
        let values: Vec<&RawValue> = all.iter().filter_map(|(_, media)| media.given(name)).collect();
        merged = merged.raw(name, &one(&values, first.as_deref().unwrap_or("null")));
    }
    merged.end()
}

fn one(values: &[&RawValue], first: &str) -> String {
    if values.iter().any(|value| value.get().starts_with('[')) {
        return array(values.iter().filter_map(|value| elements(value)).flatten().map(RawValue::get));
    }
    if matches!(first, "true" | "false") {
        return if values.iter().any(|value| value.get() == "true") { "true" } else { "false" }.to_owned();
    }
    first.to_owned()
}
