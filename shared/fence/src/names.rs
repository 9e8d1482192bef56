//! Names of the objects that fencing creates.

use crate::api::Incarnation;
use crate::model::Uid;

/// The name of the NodeFence and of the evidence of one incarnation: each client derives the same name.
#[must_use]
pub fn incident_name(spec: &Incarnation) -> String {
    name_after(&spec.name, &[spec.uid.as_bytes(), &[0], spec.boot_id.as_bytes()])
}

/// The name of the evidence that an attempt fenced storage. Each attempt has its own, as a fence that was lifted is
/// not proved again.
#[must_use]
pub fn storage_evidence_name(node: &Incarnation, fence: &Uid, attempt: u32) -> String {
    let (fence, attempt) = (fence.to_string(), attempt.to_string());
    let parts: [&[u8]; 7] =
        [node.uid.as_bytes(), &[0], node.boot_id.as_bytes(), &[0], b"storage", fence.as_bytes(), &[0]];
    name_after(&node.name, &[&parts[..], &[attempt.as_bytes()]].concat())
}

/// The name of the NodeFence of a dry run by an operator. It differs from [`incident_name`], so that a NodeFence that
/// remains after a dry run does not prevent an incident when the node is lost. `rehearsal` is part of names that exist.
#[must_use]
pub fn dry_run_name(spec: &Incarnation) -> String {
    name_after(&spec.name, &[spec.uid.as_bytes(), &[0], spec.boot_id.as_bytes(), &[0], b"rehearsal"])
}

/// A name that begins with `name` and has a hash of these parts.
pub(crate) fn name_after(name: &str, parts: &[&[u8]]) -> String {
    format!("{}-{:016x}", stem_of(name), fnv(parts))
}

/// The part before the hash: a name of 253 characters has no room for it.
pub(crate) fn stem_of(name: &str) -> &str {
    name.get(..MAX_STEM).unwrap_or(name).trim_end_matches(['-', '.'])
}

/// 253 less a dash and sixteen hexadecimal digits.
const MAX_STEM: usize = 236;

/// FNV-1a: it only distinguishes incarnations of one name; readers compare an object's spec in full.
fn fnv(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects that another version of pod-safety wrote are found under the same name.
    #[test]
    fn incident_and_evidence_names_are_stable_across_versions() {
        // The published values of FNV-1a.
        assert_eq!(fnv(&[b"a"]), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv(&[b"foo", b"bar"]), 0x8594_4171_f739_67e8);
        let node = Incarnation {
            name: "n".to_owned(),
            uid: "uid-n".to_owned(),
            boot_id: "b0000000-0000-4000-8000-000000000001".to_owned(),
        };
        let uid = Uid::new("uid-nf").unwrap();
        let name = |attempt| storage_evidence_name(&node, &uid, attempt);
        assert_eq!(
            name(2),
            format!("n-{:016x}", fnv(&[b"uid-n\0b0000000-0000-4000-8000-000000000001\0storageuid-nf\x002"]))
        );
        assert_ne!(name(2), name(3));
    }
}
