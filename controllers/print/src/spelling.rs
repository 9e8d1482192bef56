//! "Did you mean": the existing name that was probably meant by a name that does not exist.

/// Longer names may have more typing errors.
const LETTERS_PER_SLIP: usize = 4;

/// With more errors it is another name.
const MAX_SLIPS: usize = 3;

/// The one name that is nearest to the typed one. `None` where several are equally near, or where the two names are
/// siblings: an operator who confirms that `worker-3` is off must not be led to `worker-2`.
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (typed.chars().count() / LETTERS_PER_SLIP).clamp(1, MAX_SLIPS);
    let near = |name: &&str| *name != typed && !are_siblings(typed, name);
    let slips = |name: &'a str| (strsim::osa_distance(typed, name), name);
    let mut near: Vec<_> = names.into_iter().filter(near).map(slips).filter(|(slips, _)| *slips <= most).collect();
    near.sort_unstable();
    near.dedup();
    match near.as_slice() {
        [(_, one)] => Some(one),
        [(slips, one), (next, _), ..] if slips < next => Some(one),
        _ => None,
    }
}

/// Names that differ in their number, or in their last letter.
fn are_siblings(one: &str, other: &str) -> bool {
    let digits = |name: &str| name.chars().filter(char::is_ascii_digit).collect::<String>();
    let stem = |name: &str| {
        let mut letters: Vec<char> = name.chars().collect();
        letters.pop();
        letters
    };
    digits(one) != digits(other) || (one.chars().count() == other.chars().count() && stem(one) == stem(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_if_it_is_the_only_one() {
        for (typed, names, expected) in [
            ("workerb", &["worker-a", "worker-b"][..], Some("worker-b")),
            ("worker-1b", &["worker-b1", "worker-a1"], Some("worker-b1")),
            ("ordres-1", &["orders-1", "orders-2", "cache-1"], Some("orders-1")),
            ("shpo", &["shop", "default"], Some("shop")),
            ("workers-b1", &["worker-b1"], Some("worker-b1")),
            // Another machine, another replica: no typing error.
            ("worker-3", &["worker-1", "worker-2"], None),
            ("worker-c", &["worker-b"], None),
            ("orders-11", &["orders-1"], None),
            ("ip-10-0-1-7", &["ip-10-0-1-77"], None),
            // Either may be meant.
            ("worker", &["worker-", "workera"], None),
            ("db", &["api", "web"], None),
            ("frontend", &["backend"], None),
            ("a", &["a"], None),
        ] {
            assert_eq!(nearest(typed, names.iter().copied()), expected, "{typed}");
        }
    }
}
