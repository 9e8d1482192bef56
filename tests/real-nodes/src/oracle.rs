//! Which copies ran and wrote when they should not have: from the workload's own log and from samples of the process
//! tables.
//!
//! Pure. Two copies of one identity may never be alive at the same moment, frozen ones included; once a successor
//! wrote, no earlier copy may write; and a copy that cannot lock the volume shares it with another copy. API objects
//! are not read: the test checks whether they are right.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One line of a volume's log. Lines are in the order in which they were written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) identity: String,
    pub(crate) uid: String,
    pub(crate) node: String,
    /// Seconds on the clock of the host.
    pub(crate) at: f64,
    /// Whether it had the volume's lock.
    pub(crate) alone: bool,
}

impl Line {
    /// `None`: the line is incomplete, as the last line of a machine without power may be.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(' ');
        let mut next = || fields.next().map(str::to_owned);
        let (identity, uid, node) = (next()?, next()?, next()?);
        let (at, alone) = (next()?.parse().ok()?, next()? == "alone");
        Some(Self { identity, uid, node, at, alone })
    }
}

/// A copy of an identity that is alive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Copy {
    pub(crate) identity: String,
    pub(crate) uid: String,
    pub(crate) node: String,
}

/// Two copies of one identity that were alive at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sighting {
    pub(crate) at: f64,
    pub(crate) copies: [Copy; 2],
}

/// A violation, of one identity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Violation {
    /// Two copies were alive at the same time, for so long.
    TwoRan { identity: String, nodes: [String; 2], seconds: f64 },
    /// A copy wrote so many lines after its successor had begun, the last so long after.
    WroteOn { identity: String, node: String, successor: String, lines: usize, seconds: f64 },
    /// A copy wrote so many lines while another had the lock.
    NotAlone { identity: String, node: String, lines: usize },
}

impl Violation {
    /// For how long, where that is recorded.
    pub(crate) fn seconds(&self) -> f64 {
        match self {
            Self::TwoRan { seconds, .. } | Self::WroteOn { seconds, .. } => *seconds,
            Self::NotAlone { .. } => 0.0,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoRan { identity, nodes: [one, other], seconds } => {
                write!(f, "{identity} ran on {one} and {other} for {seconds:.1} s")
            }
            Self::WroteOn { identity, node, successor, lines, seconds } => write!(
                f,
                "{identity} on {node} wrote {lines} lines in the {seconds:.1} s after its successor on {successor} began"
            ),
            Self::NotAlone { identity, node, lines } => {
                write!(f, "{identity} on {node} wrote {lines} lines while another had the lock")
            }
        }
    }
}

/// An identity that moved from one copy to the next, in seconds on the clock of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Handover {
    /// The last line of the earlier copy.
    pub(crate) ended: f64,
    /// The first line of the later one.
    pub(crate) began: f64,
}

/// The handovers from each copy to the next, of each identity.
pub(crate) fn handovers(lines: &[Line]) -> Vec<Handover> {
    let mut of: BTreeMap<&str, Vec<(&str, f64, f64)>> = BTreeMap::new();
    for line in lines {
        let copies = of.entry(&line.identity).or_default();
        match copies.iter_mut().find(|(uid, ..)| *uid == line.uid) {
            Some((_, _, ended)) => *ended = line.at,
            None => copies.push((&line.uid, line.at, line.at)),
        }
    }
    let pairs = of.values().flat_map(|copies| copies.iter().zip(copies.iter().skip(1)));
    pairs.map(|((.., ended), (_, began, _))| Handover { ended: *ended, began: *began }).collect()
}

/// Checks one set of identities. Nothing is excused: only the empty list is good.
pub(crate) fn check(lines: &[Line], sightings: &[Sighting]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut together: BTreeMap<(&str, &Copy, &Copy), (f64, f64)> = BTreeMap::new();
    for Sighting { at, copies: [one, other] } in sightings {
        let (one, other) = if one <= other { (one, other) } else { (other, one) };
        let span = together.entry((&one.identity, one, other)).or_insert((*at, *at));
        span.1 = *at;
    }
    violations.extend(together.into_iter().map(|((identity, one, other), (from, to))| Violation::TwoRan {
        identity: identity.to_owned(),
        nodes: [one.node.clone(), other.node.clone()],
        seconds: to - from,
    }));
    let mut of: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    for line in lines {
        of.entry(&line.identity).or_default().push(line);
    }
    for lines in of.into_values() {
        violations.extend(wrote_on(&lines));
        violations.extend(not_alone(&lines));
    }
    violations
}

/// Compares each copy with the first line of the first copy that began after it.
fn wrote_on(lines: &[&Line]) -> Vec<Violation> {
    let mut begun: Vec<&Line> = Vec::new();
    for line in lines {
        if !begun.iter().any(|first| first.uid == line.uid) {
            begun.push(line);
        }
    }
    let pairs = begun.iter().zip(begun.iter().skip(1));
    let stale = pairs.filter_map(|(first, successor)| {
        let after = lines.iter().skip_while(|line| line.uid != successor.uid);
        let late: Vec<_> = after.filter(|line| line.uid == first.uid).collect();
        late.last().map(|last| Violation::WroteOn {
            identity: first.identity.clone(),
            node: first.node.clone(),
            successor: successor.node.clone(),
            lines: late.len(),
            seconds: last.at - successor.at,
        })
    });
    stale.collect()
}

fn not_alone(lines: &[&Line]) -> Vec<Violation> {
    let mut by: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for line in lines.iter().filter(|line| !line.alone) {
        *by.entry((&line.uid, &line.node)).or_default() += 1;
    }
    let identity = lines.first().map(|line| line.identity.clone()).unwrap_or_default();
    let violations = by.into_iter().map(|((_, node), lines)| Violation::NotAlone {
        identity: identity.clone(),
        node: node.to_owned(),
        lines,
    });
    violations.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        Line::parse(text).unwrap()
    }

    fn copy(uid: &str, node: &str) -> Copy {
        Copy { identity: "db-0".to_owned(), uid: uid.to_owned(), node: node.to_owned() }
    }

    #[test]
    fn consecutive_copies_are_no_violation() {
        let lines = ["db-0 a n1 1.00 alone", "db-0 a n1 1.10 alone", "db-0 b n2 5.00 alone", "db-1 c n1 5.00 alone"];
        assert_eq!(check(&lines.map(line), &[]), []);
    }

    #[test]
    fn a_copy_that_writes_after_its_successor_is_a_violation() {
        let lines = ["db-0 a n1 1.00 alone", "db-0 b n2 5.00 alone", "db-0 a n1 5.05 alone", "db-0 a n1 6.25 alone"];
        let violations = check(&lines.map(line), &[]);
        let [Violation::WroteOn { node, successor, lines: 2, seconds, .. }] = violations.as_slice() else {
            panic!("{violations:?}")
        };
        assert_eq!((node.as_str(), successor.as_str()), ("n1", "n2"));
        assert!((seconds - 1.25).abs() < 0.001, "{seconds}");
    }

    #[test]
    fn two_copies_on_one_volume_are_a_violation() {
        let lines = ["db-0 a n1 1.00 alone", "db-0 b n2 5.00 not-alone"];
        let violations = check(&lines.map(line), &[]);
        assert!(matches!(violations.as_slice(), [Violation::NotAlone { lines: 1, .. }]), "{violations:?}");
    }

    #[test]
    fn a_frozen_copy_counts_without_writes() {
        let copies = [copy("b", "n2"), copy("a", "n1")];
        let at = |at| Sighting { at, copies: copies.clone() };
        let violations = check(&[], &[at(5.0), at(5.1), at(7.0)]);
        let [Violation::TwoRan { nodes, seconds, .. }] = violations.as_slice() else { panic!("{violations:?}") };
        assert_eq!(nodes, &["n1", "n2"]);
        assert!((seconds - 2.0).abs() < 0.001, "{seconds}");
    }

    #[test]
    fn a_handover_lasts_from_the_last_line_of_one_copy_to_the_first_of_the_next() {
        let lines = ["db-0 a n1 1.00 alone", "db-0 a n1 2.00 alone", "db-1 c n1 3.00 alone", "db-0 b n2 5.00 alone"];
        assert_eq!(handovers(&lines.map(line)), [Handover { ended: 2.0, began: 5.0 }]);
    }

    #[test]
    fn an_incomplete_line_is_ignored() {
        assert_eq!(Line::parse("db-0 a n1 1."), None);
        assert_eq!(Line::parse(""), None);
    }
}
