//! Fuzz target: arbitrary bytes in place of a Lease, parsed here and by prost.

use pod_safety_fuzz::{fuzz, protobuf};

use super::tests::{matches_prost, seeds};

#[test]
fn a_parsed_renewal_equals_what_prost_decodes() {
    fuzz!(20_000, |draw| {
        let seeds = seeds();
        let seed = draw.one_of(&seeds).unwrap();
        matches_prost(protobuf::vary(draw, seed));
    });
}
