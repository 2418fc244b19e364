//! Compares what a page shows with what a run printed. Ids, instants, lengths of time and large numbers are samples: another run has others.

use std::collections::HashMap;

const UUID: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
/// Stands for any text in a line, and alone in a line for any number of lines.
const ANYTHING: char = '…';

/// What a page calls a thing, and what it is in this run.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<String, String>);

impl Names {
    /// A command of the page, with the ids of this run.
    pub(crate) fn in_this_run(&self, command: &str) -> String {
        let mut names: Vec<_> = self.0.iter().collect();
        names.sort_by_key(|(shown, _)| std::cmp::Reverse(shown.len())); // an id may begin another one
        names.into_iter().fold(command.to_owned(), |text, (shown, real)| text.replace(shown.as_str(), real))
    }

    /// Whether this is what the page shows. If so, the ids in it are remembered.
    pub(crate) fn match_lines(&mut self, shown: &[String], printed: &[String]) -> bool {
        let read =
            |lines: &[String]| -> Vec<Vec<Piece>> { lines.iter().map(|line| pieces(line)).filter(|line| !line.is_empty()).collect() };
        let found = lines_match(&read(shown), &read(printed), &self.0);
        let fits = found.is_some();
        self.0.extend(found.unwrap_or_default());
        fits
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The same in this run wherever the page shows the same.
    Name,
    Instant,
    Length,
    Request,
    Worker,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Letter(char),
    Blank,
    Sample(Kind, String),
    Anything,
}

type Found = HashMap<String, String>;

fn lines_match(shown: &[Vec<Piece>], printed: &[Vec<Piece>], known: &Found) -> Option<Found> {
    let Some((first, rest)) = shown.split_first() else { return printed.is_empty().then(Found::new) };
    if *first == [Piece::Anything] {
        return (0..=printed.len()).find_map(|skipped| lines_match(rest, &printed[skipped..], known));
    }
    let (line, others) = printed.split_first()?;
    let mut found = line_matches(first, line, known)?;
    let mut all = known.clone();
    all.extend(found.clone());
    found.extend(lines_match(rest, others, &all)?);
    Some(found)
}

fn line_matches(shown: &[Piece], printed: &[Piece], known: &Found) -> Option<Found> {
    let Some((first, rest)) = shown.split_first() else { return printed.is_empty().then(Found::new) };
    if *first == Piece::Anything {
        return (0..=printed.len()).find_map(|skipped| line_matches(rest, &printed[skipped..], known));
    }
    let (piece, others) = printed.split_first()?;
    match (first, piece) {
        (Piece::Sample(Kind::Name, shown), Piece::Sample(Kind::Name, real)) => {
            if known.get(shown).is_some_and(|known| known != real) {
                return None;
            }
            let mut all = known.clone();
            all.insert(shown.clone(), real.clone());
            let mut found = line_matches(rest, others, &all)?;
            found.insert(shown.clone(), real.clone());
            Some(found)
        }
        (Piece::Sample(one, _), Piece::Sample(other, _)) if one == other => line_matches(rest, others, known),
        (one, other) if one == other => line_matches(rest, others, known),
        _ => None,
    }
}

/// A line in pieces. Several blanks count as one: columns are as wide as what stands in them.
fn pieces(line: &str) -> Vec<Piece> {
    let text: Vec<char> = line.trim_end().chars().collect();
    let (mut pieces, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let begins_word = at == 0 || !text[at - 1].is_ascii_alphanumeric();
        let sample = begins_word.then(|| sample(&text[at..])).flatten();
        if let Some((kind, length)) = sample {
            pieces.push(Piece::Sample(kind, text[at..at + length].iter().collect()));
            at += length;
            continue;
        }
        match text[at] {
            ANYTHING => pieces.push(Piece::Anything),
            letter if letter.is_whitespace() => {
                if pieces.last() != Some(&Piece::Blank) {
                    pieces.push(Piece::Blank);
                }
            }
            letter => pieces.push(Piece::Letter(letter)),
        }
        at += 1;
    }
    pieces
}

/// The sample that a text begins with, and how long it is.
fn sample(text: &[char]) -> Option<(Kind, usize)> {
    instant(text)
        .map(|length| (Kind::Instant, length))
        .or_else(|| id(text).or_else(|| run(text)).map(|length| (Kind::Name, length)))
        .or_else(|| request(text).map(|length| (Kind::Request, length)))
        .or_else(|| worker(text).map(|length| (Kind::Worker, length)))
        .or_else(|| length_of_time(text).map(|length| (Kind::Length, length)))
        .or_else(|| large_number(text))
}

/// How many letters at the start are of this form: `9` a digit, `x` a hexadecimal digit, anything else itself.
fn form(text: &[char], form: &str) -> Option<usize> {
    let fits = |wanted: char, is: char| match wanted {
        '9' => is.is_ascii_digit(),
        'x' => is.is_ascii_digit() || ('a'..='f').contains(&is),
        other => other == is,
    };
    let count = form.chars().count();
    (text.len() >= count && form.chars().zip(text).all(|(wanted, is)| fits(wanted, *is))).then_some(count)
}

fn count(text: &[char], is: impl Fn(char) -> bool) -> usize {
    text.iter().take_while(|letter| is(**letter)).count()
}

/// `2026-11-15 20:58:43.037Z`, also with a `T` and with more or fewer digits.
fn instant(text: &[char]) -> Option<usize> {
    let seconds = form(text, "9999-99-99 99:99:99").or_else(|| form(text, "9999-99-99T99:99:99"))?;
    let fraction = if text.get(seconds) == Some(&'.') { 1 + count(&text[seconds + 1..], |letter| letter.is_ascii_digit()) } else { 0 };
    (text.get(seconds + fraction) == Some(&'Z')).then_some(seconds + fraction + 1)
}

/// A UUID, and the hash of its function's name that may follow.
fn id(text: &[char]) -> Option<usize> {
    let uuid = form(text, UUID)?;
    let hash =
        text.get(uuid) == Some(&'.') && count(&text[uuid + 1..], |letter| letter.is_ascii_lowercase() || letter.is_ascii_digit()) == 7;
    Some(if hash { uuid + 8 } else { uuid })
}

/// A run's id: 10 letters and digits, a dash, 26 letters and digits.
fn run(text: &[char]) -> Option<usize> {
    let word = |text: &[char]| count(text, |letter| letter.is_ascii_lowercase() || letter.is_ascii_digit());
    (word(text) == 10 && text.get(10) == Some(&'-') && word(&text[11..]) == 26).then_some(37)
}

fn request(text: &[char]) -> Option<usize> {
    let start = form(text, "req-xxxxxxxxxxxxxxxx-9")?;
    Some(start + count(&text[start..], |letter| letter.is_ascii_digit()))
}

/// `HOST-4711-cb89da1c17bb`
fn worker(text: &[char]) -> Option<usize> {
    let word = count(text, |letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.'));
    if word.checked_sub(UUID.len()).is_some_and(|start| form(&text[start..word], UUID).is_some()) {
        return None; // a delivery's id, whose last but one part happens to be a number
    }
    let tail = word.checked_sub("-xxxxxxxxxxxx".len())?;
    form(&text[tail..word], "-xxxxxxxxxxxx")?;
    let digits = text[..tail].iter().rev().take_while(|letter| letter.is_ascii_digit()).count();
    let dash = tail.checked_sub(digits + 1)?;
    (digits > 0 && dash > 0 && text[dash] == '-').then_some(word)
}

/// `2.5 s`, `11 ms`, `1 min 6 s`
fn length_of_time(text: &[char]) -> Option<usize> {
    let first = one_length(text)?;
    let rest = text.get(first).filter(|letter| **letter == ' ').and_then(|_| length_of_time(&text[first + 1..]));
    Some(first + rest.map_or(0, |rest| 1 + rest))
}

fn one_length(text: &[char]) -> Option<usize> {
    let number = count(text, |letter| letter.is_ascii_digit() || letter == '.');
    if number == 0 || text.get(number) != Some(&' ') || !text[0].is_ascii_digit() {
        return None;
    }
    let unit = count(&text[number + 1..], |letter| letter.is_ascii_alphabetic());
    let word: String = text[number + 1..number + 1 + unit].iter().collect();
    ["us", "ms", "s", "min", "h"].contains(&word.as_str()).then_some(number + 1 + unit)
}

/// Milliseconds since 1970, or a number that names something, as a fence does.
fn large_number(text: &[char]) -> Option<(Kind, usize)> {
    match count(text, |letter| letter.is_ascii_digit()) {
        digits @ 13.. => Some((Kind::Instant, digits)),
        digits @ 7..13 => Some((Kind::Name, digits)),
        _small => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn fits(shown: &str, printed: &str) -> bool {
        Names::default().match_lines(&lines(shown), &lines(printed))
    }

    #[test]
    fn another_run_has_other_ids_instants_and_lengths() {
        let shown = "call 01a1e101-53da-72d4-92fc-6f4baa7214cb.wasfpwk at 2026-11-15 20:58:43.037Z, 2.5 s ago by vm-27248-cb89da1c17bb (req-733f88877d5b231e-26)";
        let printed = "call 01a2f202-64eb-7333-8aaa-000000000000.abcdefg at 2026-11-18 00:00:00Z,   1 min 31 s ago by a-b-1-0123456789ab (req-0000000000000000-1)";
        assert!(fits(shown, printed));
        assert!(!fits(shown, &printed.replace("ago", "before")));
        assert!(fits("1-01a1e101-53da-72d4-92fc-6f4baa7214cb", "1-01a1e101-53da-72d4-8464-6f4baa7214cb"), "no worker's id");
        assert!(!fits("attempt 1", "attempt 2"), "a small number is no sample");
        assert!(fits("run 6e8n3pxw2k-01k9z3v8h4e2t9q0m7c5w1x6ya", "run 0123456789-0123456789abcdefghjkmnpqrs"));
        assert!(!fits("run 6e8n3pxw2k-01k9z3v8h4e2t9q0m7c5w1x6y", "run 0123456789-0123456789abcdefghjkmnpqr"), "too short for a run's id");
        assert!(!fits("3", "4"));
    }

    #[test]
    fn anything_stands_for_the_rest_of_a_line_and_for_lines() {
        assert!(fits("{\"a\":1,…}", "{\"a\":1,\"b\":2}"));
        assert!(fits("first\n…\nlast", "first\nsecond\nthird\nlast"));
        assert!(fits("first\n…", "first"));
        assert!(!fits("first\n…\nlast", "first\nsecond"));
        assert!(!fits("first", "first\nsecond"), "what the page does not show is printed");
        assert!(!fits("first\nsecond", "first"), "what the page shows is not printed");
    }

    #[test]
    fn a_name_means_the_same_thing_throughout_a_page() {
        let mut names = Names::default();
        assert!(names.match_lines(&lines("907401877"), &lines("111111111")));
        assert_eq!(names.in_this_run("release --fence 907401877"), "release --fence 111111111");
        assert!(names.match_lines(&lines("fence 907401877"), &lines("fence 111111111")));
        assert!(!names.match_lines(&lines("fence 907401877"), &lines("fence 222222222")));
    }
}
