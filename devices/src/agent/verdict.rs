//! Exit code and words of an agent as an answer.
//!
//! Exit codes of `status`: 0 on, 2 off. But 2 is also what Python, shells and getopt say when they cannot even begin;
//! off is therefore believed only where the agent says it in words as well. Classes of failure are in the words alone:
//! agents end with 1 whatever went wrong.

use pod_safety_transport::{Act, Answer, DeviceError, Identity, Power};

use super::ended::Ended;
use crate::said::Redactor;

const ON: i32 = 0;
const OFF: i32 = 2;
const FAILED: i32 = 1;

/// The line that the library of the agents prints for `status`, in whatever letters.
const SAYS_OFF: &str = "status: off";
const SAYS_ON: &str = "status: on";

/// What `ended` says about `act`.
pub(super) fn answer(act: Act, ended: &Ended, redactor: &Redactor) -> Result<Answer, DeviceError> {
    let said = said(ended, redactor);
    if ended.stdout.cut || ended.stderr.cut {
        return Err(DeviceError::Garbage {
            said: format!("its output is too long; it begins: {}", beginning(&said)),
        });
    }
    let power = match act {
        // It says that it did what it was told. Whether that is so is for a look to say.
        Act::Off | Act::On if ended.code == Some(ON) => Power::Unknown,
        Act::Off | Act::On => return Err(failure(ended, said)),
        Act::Look => look(ended, &said)?,
    };
    Ok(Answer::new(power, Identity::Unknown, said))
}

fn look(ended: &Ended, said: &str) -> Result<Power, DeviceError> {
    let words = String::from_utf8_lossy(&ended.stdout.text);
    // A whole line: a device may be `offline`, and `on` in the middle of a line is a doubt.
    let off = words.lines().any(|line| line.trim().eq_ignore_ascii_case(SAYS_OFF));
    let words = words.to_lowercase();
    let (maybe_off, maybe_on) = (words.contains(SAYS_OFF), words.contains(SAYS_ON));
    match ended.code {
        Some(ON) if !maybe_off => Ok(Power::On),
        Some(OFF) if off && !maybe_on => Ok(Power::Off),
        Some(ON | OFF) => {
            let code = ended.code.unwrap_or_default();
            Err(DeviceError::Garbage { said: format!("exit code {code} with the output: {said}") })
        }
        Some(_) | None => Err(failure(ended, said.to_owned())),
    }
}

/// Both streams, the complaints last, since the end is what is kept.
fn said(ended: &Ended, redactor: &Redactor) -> String {
    let parts = [
        redactor.clean(&ended.stdout.text, ended.stdout.cut),
        redactor.clean(&ended.stderr.text, ended.stderr.cut),
        if ended.left > 0 {
            format!("(left {} processes behind; they were killed)", ended.left)
        } else {
            String::new()
        },
    ];
    let joined = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
    // Cut once more: each of the parts may be as long as all may be. No secret is left in them.
    Redactor::new(&std::collections::BTreeMap::new()).clean(joined.as_bytes(), false)
}

fn beginning(said: &str) -> &str {
    &said[..said.floor_char_boundary(80)]
}

fn failure(ended: &Ended, said: String) -> DeviceError {
    match (ended.code, ended.signal) {
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
    let words = said.to_lowercase();
    let any = |list: &[&str]| list.iter().any(|word| words.contains(word));
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
    } else if any(AWAY) {
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

const AWAY: &[&str] = &[
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
