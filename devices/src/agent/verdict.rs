//! The exit code and the output of an agent as an answer.
//!
//! Exit codes of `status`: 0 on, 2 off. But Python, shells and getopt also exit with 2 if they cannot start; so off
//! counts only if the agent prints it as well. Categories of failures are in the output alone: agents exit with 1 for
//! each of them.

use pod_safety_transport::{Act, Answer, DeviceError, Identity, Power};

use super::run_result::RunResult;
use crate::redact::Redactor;

const ON: i32 = 0;
const OFF: i32 = 2;
const FAILED: i32 = 1;

/// The line that the library of the agents prints for `status`, in any case.
const OFF_LINE: &str = "status: off";
const ON_LINE: &str = "status: on";

/// What it prints for `off` if it read the power as off, and so sent nothing.
const ALREADY_OFF: &str = "success: already off";

/// The answer that `result` gives for `act`.
pub(super) fn interpret(act: Act, result: &RunResult, redactor: &Redactor) -> Result<Answer, DeviceError> {
    let output = describe_output(result, redactor);
    if result.stdout.is_truncated || result.stderr.is_truncated {
        return Err(DeviceError::Garbage {
            said: format!("its output is too long; it begins: {}", beginning(&output)),
        });
    }
    let power = match act {
        Act::Off if result.code == Some(ON) && has_line(result, ALREADY_OFF) => Power::Off,
        // The agent reports that it executed the order. Only a later status check shows whether it did.
        Act::Off | Act::On if result.code == Some(ON) => Power::Unknown,
        Act::Off | Act::On => return Err(failure(result, output)),
        Act::Look => interpret_status(result, &output)?,
    };
    Ok(Answer::new(power, Identity::Unknown, output))
}

fn interpret_status(result: &RunResult, output: &str) -> Result<Power, DeviceError> {
    let off = has_line(result, OFF_LINE);
    let stdout = String::from_utf8_lossy(&result.stdout.text).to_lowercase();
    let (maybe_off, maybe_on) = (stdout.contains(OFF_LINE), stdout.contains(ON_LINE));
    match result.code {
        Some(ON) if !maybe_off => Ok(Power::On),
        Some(OFF) if off && !maybe_on => Ok(Power::Off),
        Some(ON | OFF) => {
            let code = result.code.unwrap_or_default();
            Err(DeviceError::Garbage { said: format!("exit code {code} with the output: {output}") })
        }
        Some(_) | None => Err(failure(result, output.to_owned())),
    }
}

/// A whole line: the output may contain `offline`, and `on` in the middle of a line is a doubt.
fn has_line(result: &RunResult, expected: &str) -> bool {
    let stdout = String::from_utf8_lossy(&result.stdout.text);
    stdout.lines().any(|line| line.trim().eq_ignore_ascii_case(expected))
}

/// Both outputs, stderr last, since the end is kept.
fn describe_output(result: &RunResult, redactor: &Redactor) -> String {
    let parts = [
        redactor.clean(&result.stdout.text, result.stdout.is_truncated),
        redactor.clean(&result.stderr.text, result.stderr.is_truncated),
        if result.killed_leftovers > 0 {
            format!("(left {} processes behind; they were killed)", result.killed_leftovers)
        } else {
            String::new()
        },
    ];
    let joined = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
    // Truncated once more: each part may have the full length. No secret is left in them.
    Redactor::new(&std::collections::BTreeMap::new()).clean(joined.as_bytes(), false)
}

fn beginning(output: &str) -> &str {
    &output[..output.floor_char_boundary(80)]
}

fn failure(result: &RunResult, said: String) -> DeviceError {
    match (result.code, result.signal) {
        (Some(FAILED), _) if said.is_empty() => DeviceError::Garbage { said: "exit code 1, without output".to_owned() },
        (Some(FAILED), _) => classify(said),
        (Some(code), _) => DeviceError::Garbage { said: format!("exit code {code}: {said}") },
        (None, Some(signal)) => {
            DeviceError::Failed { said: format!("the agent was terminated by signal {signal}: {said}") }
        }
        (None, None) => DeviceError::Failed { said },
    }
}

/// The category by phrases, the most specific first. `Unable to connect/login` means either; it counts as
/// unreachable, which is always true.
fn classify(said: String) -> DeviceError {
    let lowercase = said.to_lowercase();
    let any = |list: &[&str]| list.iter().any(|phrase| lowercase.contains(phrase));
    if any(TLS) {
        DeviceError::Tls { said }
    } else if any(EXPIRED) {
        DeviceError::Expired { said }
    } else if any(THROTTLED) {
        DeviceError::Throttled { said }
    } else if any(REFUSED) {
        DeviceError::Refused { said }
    } else if any(LOGIN) {
        DeviceError::Login { said }
    } else if any(UNREACHABLE) {
        DeviceError::Unreachable { said }
    } else {
        DeviceError::Failed { said }
    }
}

const TLS: &[&str] =
    &["certificate verify failed", "certificate_verify_failed", "self-signed certificate", "ssl certificate problem"];

const EXPIRED: &[&str] = &[
    "requestexpired",
    "expiredtoken",
    "token has expired",
    "token has been expired",
    "secret keys for app",
    "credentials have expired",
    "password has expired",
];

const THROTTLED: &[&str] = &[
    "requestlimitexceeded",
    "ratelimitexceeded",
    "throttl",
    "too many requests",
    "number of concurrent sessions is exceeded",
    "retry later",
];

/// What fence_aws prints for every error of the API of EC2.
const REFUSED: &[&str] = &["incorrect access key or secret key"];

/// The status code alone is not enough: times of the log, ports and names of instances contain it.
const LOGIN: &[&str] = &[
    "401 client error",
    "http 401",
    "http error 401",
    "status code 401",
    "status code '401'",
    "status code ('401')",
    "remote returned 401",
    "unauthorized",
    "authentication fail",
    "login denied",
    "access denied",
    "login failure",
    "does not have the correct privileges",
    "permission denied (",
    "invalid user name",
    "hmac is invalid",
    "password verification",
];

const UNREACHABLE: &[&str] = &[
    "unable to connect",
    // fence_aws, if the name of the region is no host.
    "incorrect region",
    "connection refused",
    "connection timed out",
    "connection lost",
    "no route to host",
    "network is unreachable",
    "name or service not known",
    "could not resolve",
    "failed to establish a new connection",
    "unable to establish",
    "connection reset",
];
