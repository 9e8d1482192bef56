//! Whether anything answers at a port of a machine: a second fact, which can only refute.
//!
//! The kernel of a machine that runs answers, whatever the state of its kubelet: it accepts, or resets. Only if
//! nothing answers for the whole time does the fact agree with off. A host or gateway on the way that reports the
//! machine as unreachable counts as no answer.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use pod_safety_clock::Env;
use pod_safety_transport::DeviceError;
use tokio::net::TcpStream;

/// See [`FenceTransport::probe_tcp`](pod_safety_transport::FenceTransport::probe_tcp).
pub(super) async fn probe_tcp(env: &Env, address: SocketAddr, within: Duration) -> Result<bool, DeviceError> {
    match env.timeout_at(env.now() + within, TcpStream::connect(address)).await {
        Some(Ok(_accepted)) => Ok(true),
        Some(Err(error)) => classify_error(&error),
        None => Ok(false),
    }
}

fn classify_error(error: &std::io::Error) -> Result<bool, DeviceError> {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => Ok(true),
        ErrorKind::TimedOut | ErrorKind::HostUnreachable => Ok(false),
        // A rule of this host, no route, no file descriptor left: no packet was sent.
        _ => Err(DeviceError::Unreachable { said: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[tokio::test]
    async fn a_machine_that_accepts_or_resets_answers() {
        let env = Env::real(1);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(probe_tcp(&env, address, Duration::from_secs(60)).await, Ok(true));
        drop(listener);
        assert_eq!(probe_tcp(&env, address, Duration::from_secs(60)).await, Ok(true), "it resets");
    }

    #[tokio::test]
    async fn a_machine_that_does_not_answer_in_time_is_unreachable() {
        let env = Env::real(1);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert_eq!(probe_tcp(&env, listener.local_addr().unwrap(), Duration::ZERO).await, Ok(false));
    }

    #[test]
    fn an_error_of_this_host_is_no_answer_of_the_machine() {
        for (kind, expected) in [
            (ErrorKind::ConnectionRefused, Some(true)),
            (ErrorKind::ConnectionReset, Some(true)),
            (ErrorKind::TimedOut, Some(false)),
            (ErrorKind::HostUnreachable, Some(false)),
            (ErrorKind::NetworkUnreachable, None),
            (ErrorKind::NetworkDown, None),
            (ErrorKind::PermissionDenied, None),
            (ErrorKind::AddrNotAvailable, None),
        ] {
            assert_eq!(classify_error(&kind.into()).ok(), expected, "{kind:?}");
        }
    }
}
