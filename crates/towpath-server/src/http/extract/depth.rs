//! How deep JSON text nests, found without parsing it: a parser that recurses could be driven off its stack.

/// The deepest nesting that is taken.
pub(crate) const DEPTH_MAX: usize = 64;

/// Whether the text opens more than [`DEPTH_MAX`] arrays and objects inside each other. Brackets in strings do not count. Text that is
/// no JSON gets some answer; the parser deals with it afterwards.
pub(crate) fn is_too_deep(text: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'[' | b'{') => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return true;
                }
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_four_levels_are_taken_and_one_more_is_not() {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            let nested = |levels: usize| format!("{}1{}", open.repeat(levels), close.repeat(levels));
            assert!(!is_too_deep(nested(DEPTH_MAX).as_bytes()));
            assert!(is_too_deep(nested(DEPTH_MAX + 1).as_bytes()));
        }
        assert!(is_too_deep("[".repeat(100_000).as_bytes()), "text that never closes");
    }

    #[test]
    fn brackets_in_strings_do_not_count() {
        let brackets = "[".repeat(200);
        assert!(!is_too_deep(format!(r#"{{"a":"{brackets}"}}"#).as_bytes()));
        assert!(!is_too_deep(format!(r#"{{"a":"\"{brackets}\\"}}"#).as_bytes()), "an escaped quote does not end a string");
        assert!(is_too_deep(format!(r#"{{"a":"\\",{brackets}"#).as_bytes()), "an escaped backslash does not escape the quote");
    }

    #[test]
    fn many_siblings_are_not_deep() {
        assert!(!is_too_deep(format!("[{}]", "[],".repeat(1_000)).as_bytes()));
    }
}
