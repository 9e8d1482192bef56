//! The time limits on which "one process writes at a time" rests, with their reasons.

use super::super::JITTER;

#[test]
fn a_renewal_fits_into_the_deadline_with_its_jitter() {
    // Client-go's: the pause between two attempts is up to this much longer. A deadline that is no longer than one such
    // pause ends a term before its second attempt.
    assert!((JITTER - 1.2).abs() < f64::EPSILON);
}
