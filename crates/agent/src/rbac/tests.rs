//! The role, as it is printed.

use expect_test::expect;

use super::*;

#[test]
fn the_printed_role_is_the_table() {
    let printed: Vec<String> = manifests("krane").iter().map(Value::to_string).collect();
    expect![[r#"
        {"apiVersion":"v1","kind":"Namespace","metadata":{"labels":{"app.kubernetes.io/name":"krane-agent"},"name":"krane"}}
        {"apiVersion":"v1","kind":"ServiceAccount","metadata":{"labels":{"app.kubernetes.io/name":"krane-agent"},"name":"krane-agent","namespace":"krane"}}
        {"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"labels":{"app.kubernetes.io/name":"krane-agent"},"name":"krane-agent"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["list","watch"]},{"apiGroups":[""],"resources":["namespaces","serviceaccounts"],"verbs":["list","watch","create","patch"]},{"apiGroups":[""],"resources":["secrets","services"],"verbs":["list","watch","create","patch","delete"]},{"apiGroups":[""],"resourceNames":["kube-system"],"resources":["namespaces"],"verbs":["get"]},{"apiGroups":["apps"],"resources":["replicasets","deployments"],"verbs":["list","watch","create","patch","delete"]},{"apiGroups":["autoscaling"],"resources":["horizontalpodautoscalers"],"verbs":["list","watch","create","patch","delete"]},{"apiGroups":["cilium.io"],"resources":["ciliumnetworkpolicies"],"verbs":["list","watch","create","patch","delete"]},{"apiGroups":["policy"],"resources":["poddisruptionbudgets"],"verbs":["list","watch","create","patch","delete"]}]}
        {"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"labels":{"app.kubernetes.io/name":"krane-agent"},"name":"krane-agent"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"krane-agent"},"subjects":[{"kind":"ServiceAccount","name":"krane-agent","namespace":"krane"}]}
        {"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"labels":{"app.kubernetes.io/name":"krane-agent"},"name":"krane-agent","namespace":"krane"},"rules":[{"apiGroups":["coordination.k8s.io"],"resources":["leases"],"verbs":["list","watch","create","update"]}]}
        {"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"labels":{"app.kubernetes.io/name":"krane-agent"},"name":"krane-agent","namespace":"krane"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"krane-agent"},"subjects":[{"kind":"ServiceAccount","name":"krane-agent","namespace":"krane"}]}"#]].assert_eq(&printed.join("\n"));
}

#[test]
fn every_type_is_seen_and_nothing_that_holds_what_is_not_ours_is_deleted() {
    for ty in Type::ALL {
        let may = |verb| declares(Resource::Of(ty), verb);
        assert!(may(Verb::List) && may(Verb::Watch), "{ty:?}");
        assert!(!may(Verb::Update), "{ty:?} is applied, never replaced");
        let deletes = !matches!(ty, Type::Namespace | Type::ServiceAccount | Type::Pod);
        assert_eq!(may(Verb::Delete), deletes, "{ty:?}");
        assert_eq!(may(Verb::Patch), ty != Type::Pod, "{ty:?}");
        assert_eq!(may(Verb::Create), may(Verb::Patch), "{ty:?}");
    }
}
