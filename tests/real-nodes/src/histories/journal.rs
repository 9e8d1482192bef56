//! Who ran when, by the journals of the runtimes. Pure.

use std::collections::BTreeMap;

/// A process that started or ended, or a node without power.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    at: u128,
    node: String,
    event: Event,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Start(Process),
    End(Process),
    PowerOff,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    identity: String,
    uid: String,
    container: String,
}

/// The line of a node whose processes all end.
pub(super) fn power_off(at: u128) -> String {
    format!("off - - - {at}\n")
}

impl Line {
    /// `None`: the line is incomplete, as the last line of a runtime that was killed may be.
    pub(super) fn parse(node: &str, text: &str) -> Option<Self> {
        let fields: Vec<_> = text.split(' ').collect();
        let [event, container, identity, uid, at] = fields.as_slice() else { return None };
        let process =
            || Process { identity: (*identity).to_owned(), uid: (*uid).to_owned(), container: (*container).to_owned() };
        let event = match *event {
            "start" => Event::Start(process()),
            "end" => Event::End(process()),
            "off" => Event::PowerOff,
            _ => return None,
        };
        Some(Self { at: at.parse().ok()?, node: node.to_owned(), event })
    }
}

/// Each two pods of one identity whose processes ran at one moment.
pub(super) fn overlaps(mut lines: Vec<Line>) -> Vec<String> {
    lines.sort_by_key(|line| line.at);
    let mut running: BTreeMap<(Process, String), u128> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for Line { at, node, event } in lines {
        match event {
            Event::PowerOff => running.retain(|(_, on), _| *on != node),
            Event::End(process) => drop(running.remove(&(process, node))),
            Event::Start(process) => {
                for (other, on) in running.keys() {
                    if other.identity == process.identity && (other.uid != process.uid || *on != node) {
                        let pair = (process.identity.clone(), on.clone(), node.clone(), process.uid.clone());
                        found.entry(pair).or_insert(at);
                    }
                }
                running.insert((process, node), at);
            }
        }
    }
    found
        .into_iter()
        .map(|((identity, one, other, uid), at)| {
            format!("{identity} ran on {one} when {uid} started on {other} at {at}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[(&str, &str)]) -> usize {
        overlaps(lines.iter().filter_map(|(node, text)| Line::parse(node, text)).collect()).len()
    }

    #[test]
    fn two_pods_of_one_identity_at_one_moment_are_found() {
        let [first, ended] = [("n1", "start main shop/db-0 a 10"), ("n1", "end main shop/db-0 a 20")];
        for (name, lines, found) in [
            ("one after the other", vec![first, ended, ("n2", "start main shop/db-0 b 21")], 0),
            ("the second before the end of the first", vec![first, ended, ("n2", "start main shop/db-0 b 15")], 1),
            ("the first never ends", vec![first, ("n2", "start main shop/db-0 b 15")], 1),
            ("on the same node", vec![first, ("n1", "start main shop/db-0 b 15")], 1),
            ("its node lost power", vec![first, ("n1", "off - - - 12"), ("n2", "start main shop/db-0 b 15")], 0),
            ("another node lost power", vec![first, ("n2", "off - - - 12"), ("n2", "start main shop/db-0 b 15")], 1),
            ("two containers of one pod", vec![first, ("n1", "start side shop/db-0 a 15")], 0),
            ("two identities", vec![first, ("n2", "start main shop/db-1 b 15")], 0),
            ("an incomplete line", vec![first, ("n2", "start main shop/db-0 b")], 0),
        ] {
            assert_eq!(check(&lines), found, "{name}");
        }
    }
}
