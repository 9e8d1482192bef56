//! Controllers do not depend on kube, and pod-safety-shared does not re-export it.

use pod_safety_shared::client::Connection;
//~v E0432 unresolved import `pod_safety_shared::kube`
use pod_safety_shared::kube::Client;

fn inner(connection: Connection) -> Client {
    //~v E0616 field `kube` of struct `pod_safety_shared::client::Connection` is private
    connection.kube
}

fn main() {
    let _ = inner;
}
