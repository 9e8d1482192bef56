//! Fuzz target: bytes in place of a Lease, read fast and by prost.

use pod_safety_fuzz::{fuzz, protobuf};

use super::tests::{matches_prost, seeds};

#[test]
fn whatever_is_read_of_a_renewal_is_what_prost_reads() {
    fuzz!(20_000, |draw| {
        let seeds = seeds();
        let seed = draw.one_of(&seeds).unwrap();
        matches_prost(protobuf::vary(draw, seed));
    });
}
