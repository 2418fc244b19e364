//! One message whose text is all texts, field by field as the old worker's receivers expect it.

use super::{Part, Parts, media};
use crate::batch::Settings;
use crate::batch::fields::{Fields, Object};

pub(super) fn merged(settings: &Settings, parts: &Parts<'_>) -> String {
    let base = &parts.base().fields;
    let text = texts(settings, &parts.messages).join(&settings.merge.separator);
    ["channel", "bot_token", "external_user_id", "external_chat_id", "client_name", "client_phone"]
        .into_iter()
        .fold(Object::new(), |merged, name| merged.raw_if(name, base.get(name)))
        .text("text", &text)
        .raw_if("timestamp", base.get("timestamp"))
        .raw("message_ids", &parts.message_ids())
        .raw_if("trace_id", base.get("trace_id"))
        .raw("media", &media::merged(settings, parts))
        .raw("meta", &parts.meta)
        .end()
}

/// What each message says, without those that say nothing.
pub(super) fn texts(settings: &Settings, messages: &[Part<'_>]) -> Vec<String> {
    let said = messages.iter().map(|part| text(settings, &part.fields));
    said.filter(|text| !text.trim().is_empty()).collect()
}

fn text(settings: &Settings, message: &Fields<'_>) -> String {
    let media = message.get("media").and_then(|media| Fields::parse(media.get().as_bytes()).ok());
    let spoken = media.and_then(|media| media.text("voice_transcribed_text")).filter(|spoken| !spoken.is_empty());
    match spoken {
        Some(spoken) => settings.merge.voice_template.replace("{text}", &spoken),
        None => message.text("text").unwrap_or_default(),
    }
}
