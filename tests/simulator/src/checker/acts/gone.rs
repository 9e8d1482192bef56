//! S2, evidence NodeGone: two reads of a missing node, each of the Node and of its Lease, a quarantine apart.

use std::time::Duration;

use super::{Acts, Missed, VALID_FOR};

/// Two seconds, and the time that the answer took.
const MISSED_LASTS: Duration = Duration::from_millis(2_200);

/// The two requests of a read begin together, and each may take this long.
const READ_VALID_FOR: Duration = Duration::from_secs(31);

impl Acts {
    /// Whether a quorum read has just shown that the node is missing: one read covers the gracefully deleted pods of
    /// its turn.
    pub(in crate::checker) fn missed_lately(
        &self,
        caller: &str,
        node: &str,
        sent: Duration,
    ) -> Result<&'static str, String> {
        let missed = self.missed.get(&(caller.to_owned(), node.to_owned())).map(Vec::as_slice).unwrap_or_default();
        let last = missed.iter().rev().find(|read| read.at <= sent);
        match last {
            Some(read) if sent.saturating_sub(read.at) <= MISSED_LASTS => Ok("Missing"),
            Some(read) => Err(format!("node {node} was last read as missing at {:?}", read.at)),
            None => Err(format!("{caller} never read node {node} as missing")),
        }
    }

    /// Why "the node is gone" is no valid evidence for this act; `None` if it is.
    pub(in crate::checker) fn dishonest(
        &self,
        caller: &str,
        node: &str,
        sent: Duration,
        quarantine: Duration,
    ) -> Option<String> {
        let key = (caller.to_owned(), node.to_owned());
        let missed = self.missed.get(&key).map(Vec::as_slice).unwrap_or_default();
        let Some(last) = missed.iter().rev().find(|read| read.at <= sent) else {
            return Some(format!("{caller} never read node {node} as missing"));
        };
        if sent.saturating_sub(last.at) > VALID_FOR {
            return Some(format!("the last read of node {node} was {:?} old", sent.saturating_sub(last.at)));
        }
        let old_enough = |read: &&Missed| read.at + quarantine <= last.at;
        let Some(first) = missed.iter().rev().find(old_enough) else {
            return Some(format!("no read of node {node} lies a quarantine before the last"));
        };
        if first.missing_since != last.missing_since {
            return Some(format!("node {node} was there between the two reads"));
        }
        let reads = self.lease_reads.get(&key).map(Vec::as_slice).unwrap_or_default();
        let Some(to) = reads.iter().rev().find(|at| **at <= sent && sent.saturating_sub(**at) <= VALID_FOR) else {
            return Some(format!("{caller} did not read the Lease of node {node} with the Node at {:?}", last.at));
        };
        // A read of the Node without one of the Lease does not count. The latest read excuses most.
        let with_lease = |first: &Missed| {
            let beside = reads.iter().filter(|at| at.abs_diff(first.at) <= READ_VALID_FOR && *at < to);
            beside.min_by_key(|at| at.abs_diff(first.at)).map(|lease| first.at.max(*lease))
        };
        let reads = missed.iter().rev().filter(old_enough);
        let same = reads.take_while(|read| read.missing_since == last.missing_since);
        let Some(from) = same.filter_map(with_lease).next() else {
            return Some(format!("{caller} did not read the Lease of node {node} a quarantine before the last"));
        };
        let to = last.at.min(*to);
        let renewed = self.renewals.get(node).into_iter().flatten().find(|at| **at > from && **at < to);
        renewed.map(|at| {
            format!("the Lease of node {node} was renewed at {at:?}, between the reads at {from:?} and {to:?}")
        })
    }
}
