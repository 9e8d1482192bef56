//! Controllers do not depend on kube, and pod-safety-shared does not hand it on.

use pod_safety_shared::client::Connection;
use pod_safety_shared::kube::Client;

fn inner(connection: Connection) -> Client {
    connection.kube
}

fn main() {
    let _ = inner;
}
