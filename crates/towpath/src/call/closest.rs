//! "Did you mean": the known names that are most like an unknown one.

use towpath_core::names::FunctionKey;

/// No error lists more names than this.
const NAMES_MAX: usize = 3;

/// The names in the same scope that differ by few letters, most similar first; then the same name in other scopes.
pub(super) fn closest_names(wanted: &FunctionKey, known: &[FunctionKey]) -> Vec<String> {
    let few = (wanted.name.as_str().chars().count() / 3).max(2);
    let mut similar: Vec<(usize, String)> = known
        .iter()
        .filter(|key| key.scope == wanted.scope)
        .map(|key| (distance(wanted.name.as_str(), key.name.as_str()), key.name.to_string()))
        .filter(|(distance, _)| *distance <= few)
        .collect();
    similar.sort();
    let elsewhere = known.iter().filter(|key| key.name == wanted.name && key.scope != wanted.scope).map(ToString::to_string);
    similar.into_iter().map(|(_, name)| name).chain(elsewhere).take(NAMES_MAX).collect()
}

/// How many letters have to be added, removed or replaced. Case does not count.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.to_lowercase().chars().collect(), b.to_lowercase().chars().collect());
    // One row of the table at a time: row[j] is the distance from the letters of `a` so far to the first j letters of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use towpath_core::names::{FunctionName, Scope};

    use super::*;

    fn key(scope: &str, name: &str) -> FunctionKey {
        FunctionKey { scope: Scope::new(scope).unwrap(), name: FunctionName::new(name).unwrap() }
    }

    #[test]
    fn distances_are_those_of_the_textbook() {
        for (a, b, expected) in [("", "", 0), ("a", "", 1), ("kitten", "sitting", 3), ("add", "Add", 0), ("заказ", "заказы", 1)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
    }

    #[test]
    fn the_most_similar_name_comes_first_and_strangers_do_not_come() {
        let known: Vec<FunctionKey> = ["resize", "resize_all", "resizes", "send"].map(|name| key("__global__", name)).into();
        assert_eq!(closest_names(&key("__global__", "resiz"), &known), ["resize", "resizes"]);
    }

    #[test]
    fn the_same_name_in_another_scope_is_named_with_its_scope() {
        let known = [key("flow-1", "add"), key("flow-1", "ad")];
        assert_eq!(closest_names(&key("__global__", "add"), &known), ["flow-1:add"]);
    }
}
