//! The port of the API server's validation.

use super::port::validate;
use super::*;

/// A few of `TestValidateEvictionStatusUpdate`. The control-plane suite compares the port with an API server, by random
/// writes; the model check shows only that it accepts what the controller writes.
#[test]
fn the_port_refuses_what_the_api_server_refuses() {
    let of =
        |states: [&str; 2]| active_eviction(&[(APP, 10_000, states[0]), (EVICTOR, 100, states[1])]).0["status"].clone();
    let begun = of(["Active", "Inactive"]);
    let done = |mut status: Value| {
        status["responders"][0]["completionTime"] = json!(timestamp(60));
        status
    };
    let failed = |mut status: Value| {
        status["conditions"] = json!([{ "type": "Failed", "status": "True", "reason": "r" }]);
        status
    };
    let cases = [
        ("unchanged", &begun, begun.clone(), 0, true),
        ("interrupted early", &begun, of(["Interrupted", "Active"]), 1_169, false),
        ("two are active", &begun, of(["Active", "Active"]), 0, false),
        ("nobody follows", &begun, of(["Interrupted", "Inactive"]), 1_200, false),
        ("skipped", &begun, of(["Inactive", "Active"]), 0, false),
        ("canceled, not failed", &begun, of(["Canceled", "Inactive"]), 0, false),
        ("canceled and failed", &begun, failed(of(["Canceled", "Inactive"])), 0, true),
        ("failed while active", &begun, failed(begun.clone()), 0, false),
        ("reported", &begun, done(begun.clone()), 60, true),
        ("reported half a minute off", &begun, done(begun.clone()), 90, false),
        ("completed without a report", &begun, of(["Completed", "Active"]), 60, false),
    ];
    for (sentence, old, new, second, accepted) in cases {
        let result = validate(old, &new, START_SECONDS + second);
        assert_eq!(result.is_ok(), accepted, "{sentence}: {result:?}");
    }
}
