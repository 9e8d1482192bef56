//! Exit code and words of an agent as an answer.
//!
//! Exit codes of `status`: 0 on, 2 off. But 2 is also what Python, shells and getopt say when they cannot even begin;
//! off is therefore believed only where the agent says it in words as well. Classes of failure are in the words alone:
//! agents end with 1 whatever went wrong.

use pod_safety_transport::{Act, Answer, DeviceError, Identity, Power};

use super::run_result::RunResult;
use crate::redact::Redactor;

const ON: i32 = 0;
const OFF: i32 = 2;
const FAILED: i32 = 1;

/// The line that the library of the agents prints for `status`, in whatever letters.
const OFF_LINE: &str = "status: off";
const ON_LINE: &str = "status: on";

/// What `ended` says about `act`.
pub(super) fn interpret(act: Act, result: &RunResult, redactor: &Redactor) -> Result<Answer, DeviceError> {
    let output = describe_output(result, redactor);
    if result.stdout.is_truncated || result.stderr.is_truncated {
        return Err(DeviceError::Garbage {
            said: format!("its output is too long; it begins: {}", beginning(&output)),
        });
    }
    let power = match act {
        // It says that it did what it was told. Whether that is so is for a look to say.
        Act::Off | Act::On if result.code == Some(ON) => Power::Unknown,
        Act::Off | Act::On => return Err(failure(result, output)),
        Act::Look => interpret_status(result, &output)?,
    };
    Ok(Answer::new(power, Identity::Unknown, output))
}

fn interpret_status(result: &RunResult, output: &str) -> Result<Power, DeviceError> {
    let stdout = String::from_utf8_lossy(&result.stdout.text);
    // A whole line: a device may be `offline`, and `on` in the middle of a line is a doubt.
    let off = stdout.lines().any(|line| line.trim().eq_ignore_ascii_case(OFF_LINE));
    let stdout = stdout.to_lowercase();
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

/// Both streams, the complaints last, since the end is what is kept.
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
    // Cut once more: each of the parts may be as long as all may be. No secret is left in them.
    Redactor::new(&std::collections::BTreeMap::new()).clean(joined.as_bytes(), false)
}

fn beginning(output: &str) -> &str {
    &output[..output.floor_char_boundary(80)]
}

fn failure(result: &RunResult, said: String) -> DeviceError {
    match (result.code, result.signal) {
        (Some(FAILED), _) if said.is_empty() => {
            DeviceError::Garbage { said: "exit code 1, without output".to_owned() }
        }
        (Some(FAILED), _) => classify(said),
        (Some(code), _) => DeviceError::Garbage { said: format!("exit code {code}: {said}") },
        (None, Some(signal)) => {
            DeviceError::Failed { said: format!("the agent was terminated by signal {signal}: {said}") }
        }
        (None, None) => DeviceError::Failed { said },
    }
}

/// The class by words, most telling first. `Unable to connect/login` stands for both; it counts as not reached, which
/// is always true of it.
fn classify(said: String) -> DeviceError {
    let lowercase = said.to_lowercase();
    let any = |list: &[&str]| list.iter().any(|word| lowercase.contains(word));
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

const TLS: &[&str] = &[
    "certificate verify failed",
    "certificate_verify_failed",
    "self-signed certificate",
    "ssl certificate problem",
];

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

const LOGIN: &[&str] = &[
    "401",
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
    // fence_aws, where the name of the region is no host.
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
