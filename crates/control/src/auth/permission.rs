//! The one table of who may call which rpc, as [`rest::route`](crate::rest::route) is of requests. What is in neither is
//! nobody's.

/// A kind of caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Agent,
    Sentinel,
    User,
}

/// Whether a call ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Call,
    /// Opening one is limited for each token.
    Stream,
    /// A request of the API, which are limited for each token too.
    Request,
}

/// Who may call a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    pub path: &'static str,
    pub who: Who,
    pub shape: Shape,
}

/// Every path there is.
pub const PERMISSIONS: &[Permission] = &[
    stream("/ctrl.v1.ClusterService/WatchDeployments", Who::Agent),
    stream("/ctrl.v1.ClusterService/WatchSentinels", Who::Agent),
    stream("/ctrl.v1.ClusterService/WatchCiliumNetworkPolicies", Who::Agent),
    stream("/ctrl.v1.ClusterService/WatchDeploymentChanges", Who::Agent),
    stream("/ctrl.v1.ClusterService/SyncDesiredState", Who::Agent),
    call("/ctrl.v1.ClusterService/GetDesiredDeploymentState", Who::Agent),
    call("/ctrl.v1.ClusterService/GetDesiredSentinelState", Who::Agent),
    call("/ctrl.v1.ClusterService/GetDesiredCiliumNetworkPolicyState", Who::Agent),
    call("/ctrl.v1.ClusterService/ReportDeploymentStatus", Who::Agent),
    call("/ctrl.v1.ClusterService/ReportSentinelStatus", Who::Agent),
    call("/ctrl.v1.ClusterService/ReportInventory", Who::Agent),
    call("/ctrl.v1.ClusterService/ReportApplyError", Who::Agent),
    call("/ctrl.v1.ClusterService/Heartbeat", Who::Agent),
    stream("/ctrl.v1.RoutingService/WatchRoutes", Who::Sentinel),
    call("/ctrl.v1.RoutingService/ReportTraffic", Who::Sentinel),
];

/// What the table says of a path; nothing, if nobody may call it.
pub(super) fn find(path: &str) -> Option<&'static Permission> {
    PERMISSIONS.iter().find(|permission| permission.path == path)
}

const fn call(path: &'static str, who: Who) -> Permission {
    Permission { path, who, shape: Shape::Call }
}

const fn stream(path: &'static str, who: Who) -> Permission {
    Permission { path, who, shape: Shape::Stream }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The rpcs of the compiled schema, and whether each is a stream.
    ///
    /// Read field by field, so that no generated code can agree with a table that is wrong.
    fn rpcs() -> BTreeMap<String, bool> {
        let mut found = BTreeMap::new();
        for file in fields(wire::DESCRIPTOR).into_iter().filter_map(|field| field.message(1)) {
            let file = fields(file);
            let package = text(&file, 2);
            for service in file.iter().filter_map(|field| field.message(6)).map(fields) {
                for method in service.iter().filter_map(|field| field.message(2)).map(fields) {
                    let path = format!("/{package}.{}/{}", text(&service, 1), text(&method, 1));
                    let is_stream = method.iter().any(|field| field.number == 6 && field.value == 1);
                    found.insert(path, is_stream);
                }
            }
        }
        found
    }

    struct Field<'a> {
        number: u64,
        value: u64,
        bytes: &'a [u8],
    }

    impl<'a> Field<'a> {
        fn message(&self, number: u64) -> Option<&'a [u8]> {
            (self.number == number).then_some(self.bytes)
        }
    }

    fn text(fields: &[Field<'_>], number: u64) -> String {
        let bytes = fields.iter().find_map(|field| field.message(number)).expect("the field is there");
        String::from_utf8(bytes.to_vec()).expect("names are text")
    }

    fn fields(mut bytes: &[u8]) -> Vec<Field<'_>> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let value = varint(&mut bytes);
            let own = match tag & 7 {
                0 => &[],
                2 => {
                    bytes.split_off(..usize::try_from(value).expect("a length")).expect("all of it is there")
                }
                kind => panic!("a schema has no field of wire type {kind}"),
            };
            found.push(Field { number: tag >> 3, value, bytes: own });
        }
        found
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = *bytes.split_off_first().expect("a number ends");
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    #[test]
    fn every_rpc_has_its_permission_and_every_permission_its_rpc() {
        let declared = PERMISSIONS
            .iter()
            .map(|permission| (permission.path.to_owned(), permission.shape == Shape::Stream));
        assert_eq!(declared.collect::<BTreeMap<_, _>>(), rpcs());
        assert_eq!(PERMISSIONS.len(), rpcs().len(), "no path is there twice");
    }

    #[test]
    fn what_is_not_in_the_table_is_nobodys() {
        for path in ["", "/", "/health", "/ctrl.v1.ClusterService", "/ctrl.v1.ClusterService/Heartbeat/"] {
            assert_eq!(find(path), None, "{path}");
        }
    }
}
