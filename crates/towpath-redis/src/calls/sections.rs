//! Replies of scripts that have one section per function: the trouble of a section is its own.

use redis::Value;
use towpath_core::store::{StoreError, StoreTrouble};

use crate::link::refusal;
use crate::value;

/// The replies of so many sections, in order.
pub(crate) fn read(what: &str, reply: Value, sections: usize) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
    let replies = value::array(what, reply)?;
    if replies.len() != sections {
        return Err(StoreError::Corrupt(format!("{what} has {sections} sections, and the Redis server answered {}", replies.len())));
    }
    Ok(replies.into_iter().map(section).collect())
}

fn section(reply: Value) -> Result<Value, StoreError> {
    let Value::Array(parts) = &reply else { return Ok(reply) };
    let [kind, why] = &parts[..] else { return Ok(reply) };
    let why = || value::text(why).unwrap_or("no reason").to_owned();
    match value::text(kind) {
        Some("T") => Err(refused(&why())),
        Some("X") => Err(StoreError::Unknown(format!("a script failed half way: {}", why()))),
        _ => Ok(reply),
    }
}

/// Why a section wrote nothing: an error of the server with its code, or what a script has found to be wrong with a key.
pub(crate) fn refused(why: &str) -> StoreError {
    match why.split_once(' ') {
        Some((code, detail)) if code.bytes().all(|byte| byte.is_ascii_uppercase()) => refusal(code, detail),
        _ => StoreError::Unavailable(StoreTrouble::WrongType(format!(
            "{why}; rename or delete it, or choose another prefix in the store's URL"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn each_section_answers_for_itself() {
        let trouble = |kind: &str| Value::Array(vec![word(kind), word("k is a string")]);
        let reply = Value::Array(vec![word("A"), trouble("T"), trouble("X"), Value::Array(vec![Value::Int(1), Value::Int(2)])]);
        let read = read("a submit", reply.clone(), 4).expect("four sections");
        assert!(matches!(&read[1], Err(StoreError::Unavailable(StoreTrouble::WrongType(_)))), "certainly nothing was written");
        assert!(matches!(&read[2], Err(StoreError::Unknown(_))), "something may have been written");
        assert!(read[0].is_ok() && read[3].is_ok());
        assert!(super::read("a submit", reply, 3).is_err());
    }
}
