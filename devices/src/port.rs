//! Whether anything answers at a port of a machine: a second fact, which only refutes.
//!
//! The kernel of a machine that runs answers, whatever becomes of its kubelet: it accepts, or resets. Only silence for the whole time
//! bears out that nothing runs there. A host or gateway on the way that says that it cannot reach the machine is silence, too.

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
        // A rule of this host, no route, no descriptor left: nothing was asked.
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
    async fn what_does_not_answer_in_time_is_silent() {
        let env = Env::real(1);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert_eq!(probe_tcp(&env, listener.local_addr().unwrap(), Duration::ZERO).await, Ok(false));
    }

    #[test]
    fn an_error_of_this_host_says_nothing_of_the_machine() {
        for (kind, wanted) in [
            (ErrorKind::ConnectionRefused, Some(true)),
            (ErrorKind::ConnectionReset, Some(true)),
            (ErrorKind::TimedOut, Some(false)),
            (ErrorKind::HostUnreachable, Some(false)),
            (ErrorKind::NetworkUnreachable, None),
            (ErrorKind::NetworkDown, None),
            (ErrorKind::PermissionDenied, None),
            (ErrorKind::AddrNotAvailable, None),
        ] {
            assert_eq!(classify_error(&kind.into()).ok(), wanted, "{kind:?}");
        }
    }
}
