//! What lies in `deploy/`, checked by what will read it: Kubernetes' own schemas, Helm, HAProxy, systemd, the schema
//! of compose files, and this very binary. Nothing here starts a container.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use serde::Deserialize;
use serde_norway::{Deserializer, Value, from_str};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

const CHART: &str = "deploy/kubernetes/chart";

/// The first Kubernetes with native sidecars by default, and the newest whose schemas are at hand.
const VERSIONS: [&str; 2] = ["1.29", "1.37"];

/// The first one that the chart says it is for.
const FIRST_VERSION: &str = "1.27";

/// What the policy of inject.yaml is for: the first in which it is stable, and the newest.
const POLICY_VERSIONS: [&str; 2] = ["1.36", "1.37"];

const POLICY: &str = "deploy/kubernetes/inject.yaml";

/// Kinds that the Prometheus operator brings along: Kubernetes' schemas do not know them.
const MONITORING: &str = "monitoring.yaml";

#[test]
fn the_plain_manifests_are_what_the_chart_renders() {
    let rendered = tempfile::tempdir().unwrap();
    runs(Command::new("scripts/manifests").arg(rendered.path()));
    let names = |directory: &Path| -> BTreeSet<_> {
        let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
        let files = files.filter(|entry| entry.file_type().unwrap().is_file());
        files.map(|entry| entry.file_name().into_string().unwrap()).collect()
    };
    let mut expected = names(Path::new("deploy/kubernetes"));
    // It has nothing to do with the chart.
    assert!(expected.remove("zookeeper.yaml"));
    assert_eq!(names(rendered.path()), expected);
    for name in expected {
        let [new, old] = [rendered.path(), Path::new("deploy/kubernetes")]
            .map(|directory| fs::read_to_string(directory.join(&name)).unwrap());
        assert!(new == old, "{name} is not what the chart renders: run scripts/manifests");
    }
}

#[test]
fn kubernetes_knows_every_field_of_every_manifest() {
    let mut manifests = manifests();
    manifests.retain(|path| !path.ends_with(MONITORING) && path != Path::new(POLICY));
    for version in VERSIONS {
        runs(
            Command::new("kubernetes-validate").args(["--strict", "-k", version]).args(&manifests),
        );
    }
    runs(
        Command::new("kubernetes-validate")
            .args(["--strict", "-k", FIRST_VERSION])
            .args(["deploy/kubernetes/classic.yaml", "deploy/kubernetes/zookeeper.yaml"]),
    );
    for version in POLICY_VERSIONS {
        runs(Command::new("kubernetes-validate").args(["--strict", "-k", version, POLICY]));
    }
}

#[test]
fn members_understand_what_the_manifests_tell_them() {
    let mut told = 0;
    for (path, document) in documents() {
        for container in containers(&document, "bellwether") {
            told += 1;
            let config = config_beside(&path, &container);
            let mut variables = variables_of(&container);
            for (name, value) in &mut variables {
                if name == "BELLWETHER_CONFIG" {
                    let config = config.as_ref().expect("it is mounted");
                    *value = config.path().to_str().unwrap().to_owned();
                }
            }
            understands(&path, &variables);
        }
    }
    assert!(told >= 5, "each way has members, and these are {told}");
    for (id, service) in compose()["services"].as_mapping().unwrap() {
        if id != "zookeeper" {
            let variables = service["environment"].as_mapping().unwrap().iter();
            let variables: Vec<_> =
                variables.map(|(name, value)| (text(name).into(), text(value).into())).collect();
            understands(Path::new("compose.yaml"), &variables);
        }
    }
}

/// A name that only an init container gives to its port, as a native sidecar does, means nothing to Services before
/// Kubernetes 1.33 and to some networks' policies: what goes by it could not reach the members.
#[test]
fn ports_are_reached_by_number() {
    let documents = documents();
    let is_of = |document: &Value, selector: &Value| {
        let labels = &document["spec"]["template"]["metadata"]["labels"];
        let mut wanted = selector.as_mapping().unwrap().iter();
        // Each member sets its role's label by itself.
        wanted.all(|(key, value)| labels[key] == *value || value == "leader")
    };
    let mut seen = 0;
    for (path, document) in &documents {
        let (selector, ports) = match text(&document["kind"]) {
            // The test of its EndpointSlice has this port.
            "Service" if document["spec"]["selector"].is_null() => continue,
            "Service" => {
                let ports = list(&document["spec"]["ports"]).iter();
                let target = |port: &Value| match &port["targetPort"] {
                    Value::Null => port["port"].clone(),
                    target => target.clone(),
                };
                (&document["spec"]["selector"], ports.map(target).collect::<Vec<_>>())
            }
            "NetworkPolicy" => {
                let rules = list(&document["spec"]["ingress"]).iter();
                let ports = rules.flat_map(|rule| list(&rule["ports"]));
                let ports = ports.map(|port| port["port"].clone());
                (&document["spec"]["podSelector"]["matchLabels"], ports.collect())
            }
            _ => continue,
        };
        let pods = documents.iter().filter(|(beside, it)| {
            beside == path && !it["spec"]["template"].is_null() && is_of(it, selector)
        });
        let [(_, workload)] = &pods.collect::<Vec<_>>()[..] else {
            panic!("{path:?}: {selector:?}")
        };
        let pod = &workload["spec"]["template"]["spec"];
        let open: Vec<_> = list(&pod["initContainers"])
            .iter()
            .chain(list(&pod["containers"]))
            .flat_map(|container| list(&container["ports"]))
            .map(|port| &port["containerPort"])
            .collect();
        for port in ports {
            seen += 1;
            assert!(port.is_number(), "{path:?}, {}: {port:?}", text(&document["kind"]));
            assert!(open.contains(&&port), "{path:?}: {port:?} is no port of its pods: {open:?}");
        }
    }
    assert!(seen >= 20, "seen {seen}");
}

/// What a quorum has acknowledged must outlive its pods, or acknowledged leaders are forgotten.
#[test]
fn zookeeper_keeps_its_log_on_the_volume_that_stays() {
    let documents = parsed(&fs::read_to_string("deploy/kubernetes/zookeeper.yaml").unwrap());
    let set = named(&documents, "StatefulSet", "zookeeper");
    let [server] = &containers(set, "zookeeper")[..] else { panic!("{set:?}") };
    let kept: Vec<_> = list(&set["spec"]["volumeClaimTemplates"])
        .iter()
        .map(|claim| &claim["metadata"]["name"])
        .collect();
    let mounts = list(&server["volumeMounts"]).iter();
    let places: Vec<_> = mounts
        .filter(|mount| kept.contains(&&mount["name"]))
        .map(|mount| text(&mount["mountPath"]))
        .collect();
    let value = |name: &str| {
        let variable = list(&server["env"]).iter().find(|it| it["name"] == name);
        variable.map(|it| text(&it["value"]))
    };
    // Where the image puts them unless it is told otherwise.
    for (name, usual) in [("ZOO_DATA_DIR", "/data"), ("ZOO_DATA_LOG_DIR", "/datalog")] {
        let place = Path::new(value(name).unwrap_or(usual));
        assert!(places.iter().any(|kept| place.starts_with(kept)), "{name}: {place:?}");
    }
    assert_eq!(value("ZOO_CFG_EXTRA"), Some("quorumListenOnAllIPs=true"));
    let budget = named(&documents, "PodDisruptionBudget", "zookeeper");
    assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow");
}

/// Kubernetes' "restricted" standard, and what else has to be so for this program.
#[test]
fn no_pod_may_do_more_than_it_needs() {
    let mut seen = 0;
    for (path, document) in documents() {
        let kind = text(&document["kind"]);
        let is_about_rights = kind.contains("Role") || kind == "ServiceAccount";
        let writes = [LABELLED, SLICED].iter().any(|name| path.ends_with(name));
        assert!(!is_about_rights || writes, "{path:?}: needs no {kind}");
        let pod = &document["spec"]["template"]["spec"];
        if pod.is_null() {
            continue;
        }
        let told = format!("{path:?}, {}: ", text(&document["metadata"]["name"]));
        assert_eq!(pod["automountServiceAccountToken"], Value::Bool(false), "{told}");
        assert!(pod["serviceAccountName"].is_null() || writes, "{told}");
        assert_eq!(pod["securityContext"]["runAsNonRoot"], Value::Bool(true), "{told}");
        assert_eq!(text(&pod["securityContext"]["seccompProfile"]["type"]), "RuntimeDefault");
        for container in list(&pod["initContainers"]).iter().chain(list(&pod["containers"])) {
            seen += 1;
            let told = format!("{told}{}", text(&container["name"]));
            let rights = &container["securityContext"];
            assert_eq!(rights["allowPrivilegeEscalation"], Value::Bool(false), "{told}");
            assert_eq!(rights["capabilities"]["drop"], from_str::<Value>("[ALL]").unwrap());
            // ZooKeeper's image writes its configuration when it starts.
            let may_write = container["name"] == "zookeeper";
            assert!(may_write || rights["readOnlyRootFilesystem"] == true, "{told}");
            assert!(!container["resources"]["requests"]["memory"].is_null(), "{told}");
            assert!(container["resources"]["limits"]["cpu"].is_null(), "{told} would be throttled");
        }
    }
    assert!(seen >= 9, "seen {seen}");
}

/// What sets a label by Kubernetes' API, and nothing else, may do that and nothing else.
const LABELLED: &str = "pod-label.yaml";

/// And the one that writes an EndpointSlice.
const SLICED: &str = "endpointslice.yaml";

#[test]
fn a_member_that_labels_its_pod_has_that_right_alone_and_its_application_has_no_token() {
    let documents: Vec<_> =
        documents().into_iter().filter(|(path, _)| path.ends_with(LABELLED)).collect();
    let of_kind = |kind: &str| {
        let mut them =
            documents.iter().map(|(_, document)| document).filter(|it| it["kind"] == kind);
        let it = them.next().unwrap_or_else(|| panic!("no {kind}"));
        assert!(them.next().is_none(), "more than one {kind}");
        it
    };
    let role = of_kind("Role");
    let rules: Value = from_str("[{apiGroups: [''], resources: [pods], verbs: [patch]}]").unwrap();
    assert_eq!(role["rules"], rules);
    let account = of_kind("ServiceAccount");
    let binding = of_kind("RoleBinding");
    let name = &account["metadata"]["name"];
    assert_eq!(
        (&binding["roleRef"]["name"], &binding["roleRef"]["kind"]),
        (&role["metadata"]["name"], &"Role".into())
    );
    let [subject] = list(&binding["subjects"]) else { panic!("{binding:?}") };
    assert_eq!((&subject["kind"], &subject["name"]), (&"ServiceAccount".into(), name));

    let deployment = of_kind("Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(&pod["serviceAccountName"], name);
    let has_token = |volume: &&Value| {
        list(&volume["projected"]["sources"]).iter().any(|it| !it["serviceAccountToken"].is_null())
    };
    let tokens: Vec<_> = list(&pod["volumes"]).iter().filter(has_token).collect();
    let [token] = &tokens[..] else { panic!("{pod:?}") };
    let mounts = |container: &str| -> Vec<Value> {
        let [container] = &containers_of(pod, container)[..] else { panic!("{pod:?}") };
        let mounts = list(&container["volumeMounts"]).iter();
        mounts.filter(|mount| mount["name"] == token["name"]).cloned().collect()
    };
    assert!(mounts("app").is_empty());
    let [mount] = &mounts("bellwether")[..] else { panic!("{pod:?}") };
    assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount", "the default");

    let [sidecar] = &containers_of(pod, "bellwether")[..] else { panic!("{pod:?}") };
    let config = config_beside(&documents[0].0, sidecar).expect("it has hooks");
    let config: Value = Value::from(fs::read_to_string(config.path()).unwrap());
    let service = documents
        .iter()
        .map(|(_, it)| it)
        .find(|it| it["kind"] == "Service" && it["metadata"]["name"] == "example");
    let selector = service.unwrap()["spec"]["selector"].as_mapping().unwrap();
    let (key, _) = selector.iter().find(|(_, value)| *value == "leader").expect("the leader's");
    assert_eq!(text(&config), format!("[[hook]]\npod_label = {:?}\n", text(key)));
    let template = &deployment["spec"]["template"]["metadata"]["labels"];
    assert!(template[text(key)].is_null(), "a new pod does not lead: {template:?}");
}

#[test]
fn a_leader_may_write_its_address_into_one_endpoint_slice_and_no_other_object() {
    let documents: Vec<_> =
        documents().into_iter().filter(|(path, _)| path.ends_with(SLICED)).collect();
    let of_kind = |kind: &str| -> Vec<&Value> {
        documents.iter().map(|(_, document)| document).filter(|it| it["kind"] == kind).collect()
    };
    let [role] = of_kind("Role")[..] else { panic!("one Role") };
    let rules = "[{apiGroups: [discovery.k8s.io], resources: [endpointslices], \
                   resourceNames: [example-leader], verbs: [get, patch]}]";
    assert_eq!(role["rules"], from_str::<Value>(rules).unwrap());

    let [slice] = of_kind("EndpointSlice")[..] else { panic!("one EndpointSlice") };
    assert_eq!(slice["metadata"]["name"], "example-leader");
    let services = of_kind("Service");
    let service = services.iter().find(|it| it["metadata"]["name"] == "example").unwrap();
    assert!(service["spec"]["selector"].is_null(), "its endpoints would be Kubernetes' own");
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "example");
    assert_eq!(slice["ports"][0]["port"], service["spec"]["ports"][0]["targetPort"]);

    let [deployment] = of_kind("Deployment")[..] else { panic!("one Deployment") };
    let pod = &deployment["spec"]["template"]["spec"];
    let [app] = &containers_of(pod, "app")[..] else { panic!("{pod:?}") };
    assert_eq!(slice["ports"][0]["port"], app["ports"][0]["containerPort"]);
    let [sidecar] = &containers_of(pod, "bellwether")[..] else { panic!("{pod:?}") };
    let config = config_beside(&documents[0].0, sidecar).expect("it has hooks");
    let config = fs::read_to_string(config.path()).unwrap();
    assert_eq!(config, "[[hook]]\nendpoint_slice = \"example-leader\"\n");
}

#[test]
fn the_chart_says_what_is_wrong_with_a_value() {
    runs(Command::new("helm").args(["lint", "--strict", CHART]));
    for (wrong, named) in [
        ("route=nowhere", "/route"),
        ("sidecar=modern", "/sidecar"),
        ("bellwether.zookeper=zk:2181", "zookeper"),
        ("replicas=0", "/replicas"),
        ("podLabel=a b", "/podLabel"),
        ("serviceAccount=a b", "/serviceAccount"),
        ("example=false,route=haproxy", "route: haproxy is for"),
        ("example=false,monitoring.enabled=true", "monitoring.enabled is for"),
        ("podLabels.app\\.kubernetes\\.io/name=mine", "Services select by"),
        ("app.port=4040", "app.port: 4040 is Bellwether's own"),
        ("app.port=4041", "app.port: 4041 is Bellwether's own"),
        ("bellwether.port=80,app.port=80", "app.port: 80 is Bellwether's own"),
        ("bellwether.port=4041", "bellwether.port: 4041 is where probes"),
        ("bellwether.port=0", "/bellwether/port"),
        ("bellwether.recipesRoot=shared", "/bellwether/recipesRoot"),
        // An empty variable counts as none, so it would be the ensemble's root.
        ("bellwether.recipesRoot=", "/bellwether/recipesRoot"),
        ("bellwether.election=/$(POD_NAMESPACE)/locks/a", "is in locks of bellwether.recipesRoot"),
        ("ipFamily=IPv5", "/ipFamily"),
        ("bellwether.env[0].value=json", "/bellwether/env/0"),
        ("bellwether.env[0].name=A,bellwether.env[1].name=A", "A twice"),
        ("bellwether.env[0].name=A,bellwether.env[0].value=1", "/bellwether/env/0/value"),
        ("bellwether.env[0].name=1,bellwether.env[0].value=A", "/bellwether/env/0/name"),
        ("app.env[0].name=A,app.env[0].value=true", "/app/env/0/value"),
        (
            "bellwether.env[0].name=BELLWETHER_PROBE_LISTEN,bellwether.env[0].value=0.0.0.0:9",
            "must end in :4041",
        ),
        // An empty list of either would be no restriction at all.
        ("networkPolicy.zookeeper={}", "/networkPolicy/zookeeper"),
        ("networkPolicy.zookeeper=null", "/networkPolicy"),
        ("networkPolicy.ports={2281,9}", "networkPolicy.ports lacks 2181"),
        ("bellwether.env[0].name=BELLWETHER_ZOOKEEPER", "networkPolicy.ports: say which"),
        ("bellwether.sessionTimeout=10 bananas,monitoring.enabled=true", "500ms, 10s or 2m"),
    ] {
        let said = fails(Command::new("helm").args(["template", "x", CHART, "--set", wrong]));
        assert!(said.contains(named), "{wrong}: {said}");
    }
    let old = ["template", "x", CHART, "--kube-version", "1.28"];
    assert!(fails(Command::new("helm").args(old)).contains("take classic"));
    runs(Command::new("helm").args(old).args(["--set", "sidecar=classic"]));
}

/// No alert is sent for a hand-over that takes as long as it may: docs/operations.md says how long that is.
#[test]
fn the_alarm_waits_for_the_longest_hand_over() {
    let waits = |options: &[&str]| {
        let mut helm = Command::new("helm");
        helm.args(["template", "x", CHART, "--set", "monitoring.enabled=true"]);
        let documents = parsed(&rendered(helm.args(options)));
        let rules = documents.iter().find(|it| it["kind"] == "PrometheusRule").unwrap();
        let rules = list(&rules["spec"]["groups"][0]["rules"]);
        let wait = |rule: &Value| (text(&rule["alert"]).to_owned(), rule["for"].clone());
        rules.iter().map(wait).collect::<BTreeMap<_, _>>()
    };
    let usual = waits(&[]);
    let guide = fs::read_to_string("docs/operations.md").unwrap();
    let longest = guide.lines().filter_map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, timeout, _, _, longest, ..] = cells[..] else { return None };
        timeout.strip_suffix('s')?.parse::<u64>().ok()?;
        Some((timeout, longest.strip_suffix(" s")?.parse::<f64>().ok()?))
    });
    let (mut timeouts, mut expected) = (vec![], vec![]);
    for (timeout, longest) in longest {
        // Whole scrapes, of which one may come too late.
        let wait = format!("{}s", (((longest + 15.0) / 15.0).ceil() * 15.0).max(30.0));
        let told = waits(&["--set", &format!("bellwether.sessionTimeout={timeout}")]);
        assert_eq!(told["BellwetherNoLeader"], wait.as_str(), "T = {timeout}");
        let others = |all: &BTreeMap<_, _>| {
            let mut all = all.clone();
            all.remove("BellwetherNoLeader");
            all
        };
        assert_eq!(others(&told), others(&usual), "T = {timeout}");
        timeouts.push(timeout);
        expected.push(wait);
    }
    assert!(timeouts.contains(&"10s") && timeouts.len() > 5, "{timeouts:?}");
    let documented = fs::read_to_string("docs/reference/metrics.md").unwrap();
    for row in [format!("| T | {} |", timeouts.join(" | ")), expected.join(" | ")] {
        assert!(documented.contains(&row), "docs/reference/metrics.md lacks {row}");
    }
    let variables = "bellwether.env[0].name=BELLWETHER_HEARTBEAT,bellwether.env[0].value=2s,\
                     bellwether.env[1].name=BELLWETHER_SESSION_TIMEOUT,bellwether.env[1].value=20s";
    let patient = waits(&["--set", variables]);
    assert_eq!(patient["BellwetherNoLeader"], "45s", "20 s and 2 * 2 s, twice, and 15 s are 43 s");
    let ticks = waits(&["--set", "bellwether.tickTime=12s"]);
    assert_eq!(ticks["BellwetherNoLeader"], "60s", "12 s and 2 * 12 s and 15 s are 51 s");
}

/// Else each of two releases would send the alerts of both.
#[test]
fn the_rules_of_a_release_judge_only_what_it_scrapes() {
    for (release, namespace, options) in [
        ("example", "default", vec!["--set", "monitoring.enabled=true"]),
        ("x", "shop", vec!["--set", "monitoring.enabled=true,inject=true,example=false"]),
    ] {
        let mut helm = Command::new("helm");
        helm.args(["template", release, CHART, "--namespace", namespace]);
        helm.args(["--kube-version", POLICY_VERSIONS[0]]);
        let documents = parsed(&rendered(helm.args(options)));
        // The operator's job for it.
        let monitor = named(&documents, "PodMonitor", release);
        let own = format!("job=\"{namespace}/{}\"", text(&monitor["metadata"]["name"]));
        let rules = &named(&documents, "PrometheusRule", release)["spec"];
        let mut seen = 0;
        for rule in list(&rules["groups"][0]["rules"]) {
            let expression = text(&rule["expr"]);
            for metric in expression.split("bellwether_").skip(1) {
                seen += 1;
                let selector = metric.trim_start_matches(|c: char| c.is_lowercase() || c == '_');
                let is_own = selector.strip_prefix('{').is_some_and(|it| it.starts_with(&own));
                assert!(is_own, "{own}: {expression}");
            }
        }
        assert!(seen >= 20, "seen {seen}");
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), serde_norway::to_string(rules).unwrap()).unwrap();
        runs(Command::new("promtool").args(["check", "rules"]).arg(file.path()));
    }
}

#[test]
fn a_cluster_with_injection_has_one_monitor_for_every_pod_with_a_sidecar() {
    let mut helm = Command::new("helm");
    helm.args(["template", "x", CHART, "--kube-version", POLICY_VERSIONS[0]]);
    helm.args(["--set", "monitoring.enabled=true,inject=true,example=false"]);
    let documents = parsed(&rendered(&mut helm));
    let monitor = &named(&documents, "PodMonitor", "x")["spec"];
    assert_eq!(monitor["namespaceSelector"], from_str::<Value>("{any: true}").unwrap());
    assert_eq!(monitor["selector"], from_str::<Value>("{}").unwrap(), "they have no label");
    let endpoint = &monitor["podMetricsEndpoints"][0];
    let native = parsed(&fs::read_to_string("deploy/kubernetes/native.yaml").unwrap());
    let sidecar = containers(named(&native, "Deployment", "example"), "bellwether").remove(0);
    assert_eq!(endpoint["port"], sidecar["ports"][0]["name"]);
    assert_eq!(endpoint["relabelings"][0]["regex"], sidecar["name"]);
}

#[test]
fn a_chart_of_your_own_takes_the_sidecar_alone() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| {
        let path = place.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    let write = |name, text| fs::write(path(name), text).unwrap();
    write("Chart.yaml", "apiVersion: v2\nname: mine\nversion: 1.0.0\n");
    write("values.yaml", "bellwether: {example: false, app: {port: 9000}}\n");
    write(
        "templates/pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: mine}\nspec:\n  initContainers:\n    \
         {{- include \"bellwether.sidecar\" \
         (dict \"Values\" .Values.bellwether \"Release\" .Release \"Capabilities\" .Capabilities) | nindent 4 }}\n  \
         volumes:\n    {{- include \"bellwether.volumes\" \
         (dict \"Values\" .Values.bellwether \"Release\" .Release \"Capabilities\" .Capabilities) | nindent 4 }}\n",
    );
    runs(Command::new("cp").args(["-rL", CHART]).arg(path("charts/bellwether")));
    let rendered = runs(Command::new("helm").args(["template", "x"]).arg(place.path()));
    let documents = parsed(&rendered);
    assert_eq!(documents.len(), 1, "{rendered}");
    let [sidecar] = &containers_of(&documents[0]["spec"], "bellwether")[..] else {
        panic!("{rendered}")
    };
    let address = list(&sidecar["env"]).iter().find(|it| it["name"] == "BELLWETHER_ADDRESS");
    assert_eq!(address.unwrap()["value"], "$(POD_IP):9000");
    let rights = &sidecar["securityContext"];
    assert_eq!((&rights["runAsNonRoot"], &rights["runAsUser"]), (&true.into(), &65532.into()));
    assert_eq!(rights["seccompProfile"]["type"], "RuntimeDefault", "whatever the pod has");
    keeps_its_session_alone(&documents[0]["spec"]);
}

#[test]
fn a_chart_of_your_own_takes_what_labels_and_the_application_need() {
    let documents = chart_of_your_own(
        "{example: false, route: label, bellwether: {port: 4050}}",
        "{{ include \"bellwether.rbac\" $context }}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {name: mine}\nspec:\n  containers:\n    - name: app\n      \
         image: mine\n      env:\n        {{- include \"bellwether.environment\" $context | nindent 8 }}\n",
    );
    let kinds: BTreeSet<_> = documents.iter().map(|document| text(&document["kind"])).collect();
    let expected = ["ConfigMap", "Pod", "Role", "RoleBinding", "ServiceAccount"];
    assert_eq!(kinds, BTreeSet::from(expected));
    let [app] = &containers_of(&named(&documents, "Pod", "mine")["spec"], "app")[..] else {
        panic!("{documents:?}")
    };
    let url = ("BELLWETHER_URL".to_owned(), "http://127.0.0.1:4050".to_owned());
    assert!(variables_of(app).contains(&url), "{app:?}");
    let role = named(&documents, "Role", "x-bellwether");
    let own: Value = from_str("{bellwether.io/group: x}").unwrap();
    assert_eq!(role["metadata"]["labels"], own, "the usual keys are the chart's own");
    valid(&documents, VERSIONS[0]);
}

#[test]
fn a_chart_of_your_own_takes_the_route_and_the_volumes() {
    let values = |route: &str| {
        format!(
            "{{example: false, route: {route}, app: {{port: 9000}}, volumes: [{{name: ca, emptyDir: {{}}}}], \
              bellwether: {{volumeMounts: [{{name: ca, mountPath: /ca}}]}}}}"
        )
    };
    let template = "{{ include \"bellwether.route\" $context }}\n---\n\
                    {{ include \"bellwether.rbac\" $context }}\n---\n\
                    apiVersion: v1\nkind: Pod\nmetadata:\n  name: mine\n  annotations:\n    \
                    checksum/config: {{ include \"bellwether.config\" $context | sha256sum }}\nspec:\n  \
                    containers: [{name: app, image: mine}]\n  \
                    initContainers:\n    {{- include \"bellwether.sidecar\" $context | nindent 4 }}\n  \
                    volumes:\n    {{- include \"bellwether.volumes\" $context | nindent 4 }}\n";
    let documents = chart_of_your_own(&values("endpointslice"), template);
    let role = named(&documents, "Role", "x-bellwether");
    let slice = named(&documents, "EndpointSlice", text(&role["rules"][0]["resourceNames"][0]));
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "x-leader");
    assert_eq!(slice["ports"][0]["port"], 9000);
    let service = named(&documents, "Service", "x-leader");
    assert!(service["spec"]["selector"].is_null(), "{service:?}");
    has_the_volumes_it_mounts(&named(&documents, "Pod", "mine")["spec"]);
    valid(&documents, VERSIONS[0]);

    let asked = chart_of_your_own(&values("ask"), template);
    let kinds: Vec<_> = asked.iter().map(|document| text(&document["kind"])).collect();
    assert_eq!(kinds, ["Pod"], "who asks needs neither a role nor a Service");
}

/// Renders a chart that depends on ours with these values, and has this one template, in which $context is what ours take.
#[track_caller]
fn chart_of_your_own(values: &str, template: &str) -> Vec<Value> {
    let place = written_chart(values, template);
    parsed(&rendered(Command::new("helm").args(["template", "x"]).arg(place.path())))
}

#[track_caller]
fn written_chart(values: &str, template: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for directory in ["templates", "charts"] {
        fs::create_dir(place.path().join(directory)).unwrap();
    }
    let context = "{{- $context := dict \"Values\" .Values.bellwether \"Release\" .Release \
                   \"Capabilities\" .Capabilities }}\n";
    for (name, content) in [
        ("Chart.yaml", "apiVersion: v2\nname: mine\nversion: 1.0.0\n".to_owned()),
        ("values.yaml", format!("bellwether: {values}\n")),
        ("templates/all.yaml", format!("{context}{template}")),
    ] {
        fs::write(place.path().join(name), content).unwrap();
    }
    runs(Command::new("cp").args(["-rL", CHART]).arg(place.path().join("charts/bellwether")));
    place
}

/// `helm create` gives a chart a Service, a ServiceAccount and a Deployment with the release's name, and the usual labels, by which
/// its Service and its Deployment select.
#[test]
fn a_chart_that_helm_created_and_ours_have_no_name_and_no_label_in_common() {
    let place = tempfile::tempdir().unwrap();
    runs(Command::new("helm").args(["create", "orders"]).current_dir(place.path()));
    let created = place.path().join("orders");
    let theirs = rendered(Command::new("helm").args(["template", "orders"]).arg(&created));
    let theirs = parsed(&theirs);
    let names = |documents: &[Value]| -> BTreeSet<(String, String)> {
        let name =
            |it: &Value| (text(&it["kind"]).to_owned(), text(&it["metadata"]["name"]).to_owned());
        documents.iter().map(name).collect()
    };
    let deployment = named(&theirs, "Deployment", "orders");
    let their_labels = deployment["spec"]["template"]["metadata"]["labels"].as_mapping().unwrap();
    fs::write(created.join("values.yaml"), "bellwether: {example: false}\n").unwrap();
    fs::remove_dir_all(created.join("templates")).unwrap();
    fs::create_dir(created.join("templates")).unwrap();
    fs::create_dir_all(created.join("charts")).unwrap();
    let template = "{{- $context := dict \"Values\" .Values.bellwether \"Release\" .Release }}\n\
                    {{ include \"bellwether.route\" $context }}\n---\n{{ include \"bellwether.rbac\" $context }}\n";
    fs::write(created.join("templates/all.yaml"), template).unwrap();
    runs(Command::new("cp").args(["-rL", CHART]).arg(created.join("charts/bellwether")));
    for route in ["label", "endpointslice", "readiness"] {
        let mut helm = Command::new("helm");
        helm.args(["template", "orders", "--set", &format!("bellwether.route={route}")]);
        let ours = parsed(&rendered(helm.arg(&created)));
        assert!(names(&ours).is_disjoint(&names(&theirs)), "{route}: {:?}", names(&ours));
        let service = named(&ours, "Service", "orders-leader");
        for document in &ours {
            for (key, _) in document["metadata"]["labels"].as_mapping().unwrap() {
                assert!(!their_labels.contains_key(key), "{route}: {key:?}");
            }
        }
        if let Some(selector) = service["spec"]["selector"].as_mapping() {
            assert_eq!(selector["bellwether.io/group"], "orders", "{route}");
        }
    }
}

/// Each has an election, a label and objects of its own, and none of them the other's.
#[test]
fn workloads_of_one_release_with_groups_have_elections_of_their_own() {
    let template = "{{- range $group := list \"web\" \"jobs\" }}\n\
                    {{- $context := dict \"Values\" $.Values.bellwether \"Release\" $.Release \"group\" $group }}\n\
                    ---\n{{ include \"bellwether.route\" $context }}\n---\n{{ include \"bellwether.rbac\" $context }}\n---\n\
                    apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ $group }}\n  labels:\n    \
                    {{- include \"bellwether.labels\" $context | nindent 4 }}\nspec:\n  \
                    containers: [{name: app, image: mine}]\n  \
                    initContainers:\n    {{- include \"bellwether.sidecar\" $context | nindent 4 }}\n  \
                    volumes:\n    {{- include \"bellwether.volumes\" $context | nindent 4 }}\n{{- end }}\n";
    for (election, expected) in [("", "/default/x-"), ("/of/$(GROUP)", "/of/")] {
        let documents = chart_of_your_own(
            &format!(
                "{{example: false, route: endpointslice, bellwether: {{election: '{election}'}}}}"
            ),
            template,
        );
        for group in ["web", "jobs"] {
            let pod = named(&documents, "Pod", group);
            assert_eq!(pod["metadata"]["labels"]["bellwether.io/group"], format!("x-{group}"));
            let [sidecar] = &containers_of(&pod["spec"], "bellwether")[..] else {
                panic!("{pod:?}")
            };
            let own = ("BELLWETHER_ELECTION".to_owned(), format!("{expected}{group}"));
            assert!(variables_of(sidecar).contains(&own), "{group}: {sidecar:?}");
            for (kind, suffix) in [
                ("Service", "leader"),
                ("EndpointSlice", "leader"),
                ("Role", "bellwether"),
                ("RoleBinding", "bellwether"),
                ("ServiceAccount", "bellwether"),
                ("ConfigMap", "bellwether"),
            ] {
                named(&documents, kind, &format!("x-{group}-{suffix}"));
            }
            let volumes = list(&pod["spec"]["volumes"]);
            let config = volumes.iter().find(|volume| !volume["configMap"].is_null()).unwrap();
            assert_eq!(config["configMap"]["name"], format!("x-{group}-bellwether"));
        }
        valid(&documents, VERSIONS[0]);
    }
    for (values, named) in [
        ("{example: false, bellwether: {election: /shared}}", "must contain $(GROUP)"),
        (
            "{example: false, bellwether: {env: [{name: BELLWETHER_ELECTION, value: /shared}]}}",
            "must contain $(GROUP)",
        ),
    ] {
        let place = written_chart(values, template);
        let said = fails(Command::new("helm").args(["template", "x"]).arg(place.path()));
        assert!(said.contains(named), "{values}: {said}");
    }
}

/// A rollback writes what the earlier revision has, so the revision must not have the endpoints of an earlier leader.
#[test]
fn no_revision_has_the_endpoints_of_a_leader_and_no_service_with_a_selector_is_taken() {
    const SLICE: &str = r#"{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "x-leader", "namespace": "default"}, "endpoints": [{"addresses": ["10.0.0.9"]}],
        "ports": [{"name": "http", "port": 8080}]}"#;
    let upgrade = |route: &str, selector: &str, slice: Option<&str>| {
        let chart = written_chart(
            &format!("{{example: false, route: {route}}}"),
            "{{ include \"bellwether.route\" $context }}\n",
        );
        let owned = r#""labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations":
            {"meta.helm.sh/release-name": "x", "meta.helm.sh/release-namespace": "default"}"#;
        let service = format!(
            r#"{{"apiVersion": "v1", "kind": "Service", "metadata": {{"name": "x-leader", {owned}}},
                "spec": {{"selector": {selector}}}}}"#
        );
        let mut objects = vec![("/api/v1/namespaces/default/services/x-leader", service)];
        if let Some(slice) = slice {
            let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/x-leader";
            objects.push((path, slice.to_owned()));
        }
        let url = api_server(objects);
        let mut helm = Command::new("helm");
        helm.args(["template", "x", "--namespace", "default", "--kubeconfig", "/dev/null"]);
        helm.args(["--dry-run=server", "--disable-openapi-validation", "--kube-apiserver", &url]);
        helm.arg(chart.path());
        (helm, chart)
    };
    let slices = |slice: Option<&str>| -> Vec<Value> {
        let (mut helm, _chart) = upgrade("endpointslice", "null", slice);
        let documents = parsed(&rendered(&mut helm));
        named(&documents, "Service", "x-leader");
        documents.into_iter().filter(|document| document["kind"] == "EndpointSlice").collect()
    };
    assert!(slices(Some(SLICE)).is_empty(), "what exists is the leader's");
    let [created] = &slices(None)[..] else { panic!("it is created once") };
    assert_eq!(created["endpoints"], from_str::<Value>("[]").unwrap());
    let annotations = &created["metadata"]["annotations"];
    // A hook is no part of the revision. Without a policy of its own, it would be deleted before it is created.
    assert_eq!(annotations["helm.sh/hook"], "pre-install,pre-upgrade");
    assert_eq!(annotations["helm.sh/hook-delete-policy"], "hook-failed");
    assert_eq!(annotations["argocd.argoproj.io/hook"], "Skip");

    let other_port = SLICE.replace("8080", "9000");
    for (route, selector, slice, named) in [
        ("endpointslice", "{\"app\": \"mine\"}", SLICE, "the Service x-leader has a selector"),
        ("endpointslice", "null", other_port.as_str(), "has the port 9000; change it first"),
        ("label", "null", SLICE, "kubectl -n default delete endpointslice x-leader"),
    ] {
        let (mut helm, _chart) = upgrade(route, selector, Some(slice));
        let said = fails(&mut helm);
        assert!(said.contains(named), "{route}: {said}");
    }
}

/// Starts an API server that has these objects at their paths, and no others, and returns its URL.
fn api_server(objects: Vec<(&'static str, String)>) -> String {
    let mut answers = objects;
    for (path, answer) in [
        ("/version", r#"{"major": "1", "minor": "36", "gitVersion": "v1.36.0"}"#),
        ("/api", r#"{"kind": "APIVersions", "versions": ["v1"]}"#),
        (
            "/api/v1",
            r#"{"kind": "APIResourceList", "groupVersion": "v1",
                "resources": [{"name": "services", "namespaced": true, "kind": "Service", "verbs": ["get"]}]}"#,
        ),
        (
            "/apis",
            r#"{"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "discovery.k8s.io",
                "versions": [{"groupVersion": "discovery.k8s.io/v1", "version": "v1"}],
                "preferredVersion": {"groupVersion": "discovery.k8s.io/v1", "version": "v1"}}]}"#,
        ),
        (
            "/apis/discovery.k8s.io/v1",
            r#"{"kind": "APIResourceList", "groupVersion": "discovery.k8s.io/v1",
                "resources": [{"name": "endpointslices", "namespaced": true, "kind": "EndpointSlice", "verbs": ["get"]}]}"#,
        ),
    ] {
        answers.push((path, answer.to_owned()));
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let answers = answers.clone();
            // Helm opens connections that it does not use.
            thread::spawn(move || {
                let mut lines = BufReader::new(&connection).lines().map_while(Result::ok);
                let Some(request) = lines.next() else { return };
                let _headers = lines.take_while(|line| !line.is_empty()).count();
                let path = request.split([' ', '?']).nth(1).unwrap_or_default();
                let found = answers.iter().find(|(known, _)| *known == path);
                let (status, body) = match found {
                    Some((_, answer)) => ("200 OK", answer.as_str()),
                    None => (
                        "404 Not Found",
                        r#"{"kind": "Status", "code": 404, "reason": "NotFound"}"#,
                    ),
                };
                let length = body.len();
                let _ = write!(
                    &connection,
                    "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
                     Connection: close\r\n\r\n{body}"
                );
            });
        }
    });
    url
}

/// Each mount of the sidecar names a volume of its pod.
#[track_caller]
fn has_the_volumes_it_mounts(pod: &Value) {
    let [sidecar] = &containers_of(pod, "bellwether")[..] else { panic!("{pod:?}") };
    let volumes: Vec<_> = list(&pod["volumes"]).iter().map(|volume| &volume["name"]).collect();
    for mount in list(&sidecar["volumeMounts"]) {
        assert!(volumes.contains(&&mount["name"]), "{mount:?}: {volumes:?}");
    }
}

#[test]
fn the_application_has_its_own_probe_and_rights_and_the_pod_its_group() {
    let documents = chart(
        "{fsGroup: 65532, app: {readinessProbe: {httpGet: {path: /healthz, port: http}}, \
           securityContext: {readOnlyRootFilesystem: false}}}",
    );
    let deployment = named(&documents, "Deployment", "example");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["fsGroup"], 65532);
    let [app] = &containers_of(pod, "app")[..] else { panic!("{pod:?}") };
    assert_eq!(app["readinessProbe"]["httpGet"]["path"], "/healthz");
    let rights = "{allowPrivilegeEscalation: false, readOnlyRootFilesystem: false, capabilities: {drop: [ALL]}}";
    assert_eq!(app["securityContext"], from_str::<Value>(rights).unwrap(), "the rest stays");
    valid(&documents, VERSIONS[0]);
}

#[test]
fn the_values_in_the_reference_of_the_chart_make_pods_that_are_valid() {
    let reference = fs::read_to_string("docs/reference/chart.md").unwrap();
    let blocks = reference.split("```yaml\n").skip(1);
    let blocks: Vec<_> = blocks.map(|block| block.split("```").next().unwrap()).collect();
    let values = |key: &str| {
        let block = blocks.iter().find(|block| block.starts_with(key));
        chart(block.unwrap_or_else(|| panic!("no values begin with {key}")))
    };
    let documents = values("fsGroup: ");
    let pod = &named(&documents, "Deployment", "example")["spec"]["template"]["spec"];
    has_the_volumes_it_mounts(pod);
    let volume = list(&pod["volumes"]).iter().find(|volume| !volume["secret"].is_null()).unwrap();
    // Of the group, and in YAML an octal number.
    assert_eq!(volume["secret"]["defaultMode"], 0o440, "{volume:?}");
    assert_eq!(pod["securityContext"]["fsGroup"], 65532);
    valid(&documents, VERSIONS[0]);

    let documents = values("networkPolicy:");
    let egress = &named(&documents, "NetworkPolicy", "example")["spec"]["egress"][0];
    assert!(!egress["to"][0]["namespaceSelector"].is_null(), "{egress:?}");
    valid(&documents, VERSIONS[0]);
}

#[test]
fn an_account_that_exists_gets_the_role() {
    for route in ["label", "endpointslice"] {
        let documents = chart(&format!("{{route: {route}, serviceAccount: mine}}"));
        assert!(documents.iter().all(|document| document["kind"] != "ServiceAccount"), "{route}");
        let binding = named(&documents, "RoleBinding", "example");
        assert_eq!(binding["subjects"][0]["name"], "mine", "{route}");
        let deployment = named(&documents, "Deployment", "example");
        assert_eq!(deployment["spec"]["template"]["spec"]["serviceAccountName"], "mine", "{route}");
    }
    let documents = chart("{serviceAccount: mine}");
    let pod = &named(&documents, "Deployment", "example")["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "mine");
    assert_eq!(pod["automountServiceAccountToken"], Value::Bool(false));
}

/// What is in the pod's own file comes from the policy alone: as Kubernetes does it, by tests/inject.py.
#[test]
fn a_pod_that_asks_for_it_gets_the_sidecar_from_the_policy() {
    let plain = "{name: shop-0, annotations: {bellwether.io/inject: shop}}";
    let with_port =
        "{name: shop-0, annotations: {bellwether.io/inject: shop, bellwether.io/port: '9090'}}";
    let apps = "containers: [{name: log, image: l}, {name: app, image: a, ports: [{containerPort: 9000}]}]";
    let own = "initContainers: [{name: own, image: i}], volumes: [{name: own, emptyDir: {}}]";
    let native = parsed(&fs::read_to_string("deploy/kubernetes/native.yaml").unwrap());
    let native = containers(named(&native, "Deployment", "example"), "bellwether").remove(0);
    let mut pods = vec![];
    for (metadata, spec, address, names) in [
        (plain, apps.to_owned(), "10.0.0.7:9000", vec!["bellwether"]),
        (with_port, format!("{apps}, {own}"), "10.0.0.7:9090", vec!["bellwether", "own"]),
        (plain, "containers: [{name: app, image: a}]".to_owned(), "10.0.0.7", vec!["bellwether"]),
    ] {
        let asked = pod(metadata, &spec);
        let injected = injected(Path::new(POLICY), &asked);
        let pod = &injected["spec"];
        let started: Vec<_> =
            list(&pod["initContainers"]).iter().map(|each| text(&each["name"])).collect();
        assert_eq!(started, names, "Bellwether is the first");
        assert_eq!(list(&pod["volumes"]).len(), names.len(), "{pod:?}");
        assert_eq!(pod["containers"], asked["spec"]["containers"]);
        keeps_its_session_alone(pod);
        let [sidecar] = &containers_of(pod, "bellwether")[..] else { panic!("{pod:?}") };
        for (field, value) in native.as_mapping().unwrap() {
            assert!(field == "env" || sidecar[field] == *value, "{field:?}: {sidecar:?}");
        }
        let rights = &sidecar["securityContext"];
        for (right, value) in native["securityContext"].as_mapping().unwrap() {
            assert_eq!(rights[right], *value);
        }
        assert_eq!((&rights["runAsNonRoot"], &rights["runAsUser"]), (&true.into(), &65532.into()));
        assert_eq!(rights["seccompProfile"]["type"], "RuntimeDefault");
        let variables = variables_of(sidecar);
        for (name, value) in [
            ("BELLWETHER_ADDRESS", address),
            ("BELLWETHER_ELECTION", "/default/shop"),
            ("BELLWETHER_RECIPES_ROOT", "/default"),
        ] {
            assert!(variables.contains(&(name.into(), value.into())), "{name}: {variables:?}");
        }
        understands(Path::new(POLICY), &variables);
        pods.push(injected);
    }
    for version in POLICY_VERSIONS {
        valid(&pods, version);
    }
}

#[test]
fn the_policy_leaves_alone_what_does_not_ask_or_has_a_sidecar() {
    let asks = "{name: shop-0, annotations: {bellwether.io/inject: shop}}";
    for (metadata, spec) in [
        ("{name: shop-0}", "containers: [{name: app, image: a}]"),
        ("{name: shop-0, annotations: {a/b: c}}", "containers: [{name: app, image: a}]"),
        (
            "{name: shop-0, annotations: {bellwether.io/inject: 'false'}}",
            "containers: [{name: app, image: a}]",
        ),
        // The kubelet makes such a pod of a file on its node, and it must remain like that.
        (
            "{name: shop-0, annotations: {bellwether.io/inject: shop, kubernetes.io/config.mirror: a}}",
            "containers: [{name: app, image: a}]",
        ),
        (asks, "containers: [{name: app, image: a}, {name: bellwether, image: b}]"),
        (
            asks,
            "containers: [{name: app, image: a}], initContainers: [{name: bellwether, image: b}]",
        ),
    ] {
        let asked = pod(metadata, spec);
        assert_eq!(injected(Path::new(POLICY), &asked), asked);
    }
}

/// Those who write `"true"` mean a switch: all of them would be one group.
#[test]
fn the_policy_refuses_a_pod_that_asks_for_it_and_names_no_group() {
    is_refused(["", "true"], "bellwether.io/inject is the name of a group");
}

/// Checks that a pod that names one of these groups is refused with these words.
#[track_caller]
fn is_refused<const N: usize>(groups: [&str; N], words: &str) {
    for name in groups {
        let metadata = format!("{{name: shop-0, annotations: {{bellwether.io/inject: '{name}'}}}}");
        let asked = pod(&metadata, "containers: [{name: app, image: a}]");
        let (mut evaluate, _file) = inject(Path::new(POLICY), &asked);
        let said = fails(&mut evaluate);
        assert!(said.contains(words), "{name:?}: {said}");
    }
}

/// The sidecar would end, as the election's path would be among those of the locks.
#[test]
fn the_policy_refuses_a_group_in_a_path_that_is_taken() {
    is_refused(["locks", "barriers", "config"], "must not be locks, barriers or config");
}

/// Else two teams that take the lock `migrate` would wait for each other.
#[test]
fn locks_and_values_are_those_of_a_namespace_unless_the_chart_is_told_otherwise() {
    let mut seen = 0;
    for (path, document) in documents() {
        for container in containers(&document, "bellwether") {
            seen += 1;
            let variables = variables_of(&container);
            let own = ("BELLWETHER_RECIPES_ROOT".to_owned(), "/default".to_owned());
            assert!(variables.contains(&own), "{path:?}: {variables:?}");
        }
    }
    assert!(seen >= 5, "each way has members, and these are {seen}");
    for (values, expected) in [
        ("{bellwether: {recipesRoot: /shared}}", "/shared"),
        ("{bellwether: {env: [{name: BELLWETHER_RECIPES_ROOT, value: /of-mine}]}}", "/of-mine"),
    ] {
        let documents = chart(values);
        let [sidecar] = &containers(named(&documents, "Deployment", "example"), "bellwether")[..]
        else {
            panic!("{documents:?}")
        };
        let variables = variables_of(sidecar);
        let told = ("BELLWETHER_RECIPES_ROOT".to_owned(), expected.to_owned());
        assert!(variables.contains(&told), "{values}: {variables:?}");
        understands(Path::new(CHART), &variables);
    }
}

#[test]
fn the_policy_has_what_the_values_say_of_the_sidecar() {
    let values = "{example: false, inject: true, ipFamily: IPv6, ready: none, \
                   volumes: [{name: ca, csi: {driver: d, volumeAttributes: {a/b: c}}}], \
                   bellwether: {zookeeper: 'zk:8080', election: /mine/$(GROUP), resources: {limits: {cpu: 1}}, \
                   volumeMounts: [{name: ca, mountPath: /ca}], \
                   env: [{name: BELLWETHER_LOG_FORMAT, value: json}]}}";
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(values.as_bytes()).unwrap();
    let mut helm = Command::new("helm");
    helm.args(["template", "x", CHART, "--kube-version", POLICY_VERSIONS[0], "--values"]);
    let policy = tempfile::NamedTempFile::new().unwrap();
    fs::write(policy.path(), rendered(helm.arg(file.path()))).unwrap();
    let asked = pod(
        "{name: shop-0, annotations: {bellwether.io/inject: shop}}",
        "containers: [{name: app, image: a, ports: [{containerPort: 9000}]}]",
    );
    let injected = injected(policy.path(), &asked);
    let [sidecar] = &containers_of(&injected["spec"], "bellwether")[..] else {
        panic!("{injected:?}")
    };
    let variables = variables_of(sidecar);
    for (name, value) in [
        ("BELLWETHER_ADDRESS", "[10.0.0.7]:9000"),
        ("BELLWETHER_ZOOKEEPER", "zk:8080"),
        ("BELLWETHER_ELECTION", "/mine/shop"),
        ("BELLWETHER_LOG_FORMAT", "json"),
    ] {
        assert!(variables.contains(&(name.into(), value.into())), "{name}: {variables:?}");
    }
    assert!(sidecar["readinessProbe"].is_null(), "{sidecar:?}");
    assert_eq!(sidecar["resources"]["limits"]["cpu"], "1");
    has_the_volumes_it_mounts(&injected["spec"]);
    let volume = list(&injected["spec"]["volumes"]).iter().find(|volume| volume["name"] == "ca");
    assert_eq!(volume.unwrap()["csi"]["volumeAttributes"]["a/b"], "c");
    valid(std::slice::from_ref(&injected), POLICY_VERSIONS[0]);
    for (wrong, named) in [
        ("route=label", "without `route: label`"),
        ("sidecar=classic", "only a native sidecar"),
        ("bellwether.port=80", "1024 or more"),
        ("route=endpointslice", "without `route: label` or `endpointslice`"),
        ("bellwether.election=/apps", "must contain $(GROUP)"),
        (
            "bellwether.env[0].name=BELLWETHER_ELECTION,bellwether.env[0].value=/apps",
            "must contain $(GROUP)",
        ),
    ] {
        let mut helm = Command::new("helm");
        helm.args(["template", "x", CHART, "--kube-version", POLICY_VERSIONS[0]]);
        let said = fails(helm.args(["--set", "inject=true,example=false", "--set", wrong]));
        assert!(said.contains(named), "{wrong}: {said}");
    }
    let old = ["template", "x", CHART, "--kube-version", "1.35", "--set", "inject=true"];
    assert!(fails(Command::new("helm").args(old)).contains("Kubernetes 1.36 or newer"));
}

fn pod(metadata: &str, spec: &str) -> Value {
    from_str(&format!("{{apiVersion: v1, kind: Pod, metadata: {metadata}, spec: {{{spec}}}}}"))
        .unwrap()
}

/// The pod as this policy makes it.
#[track_caller]
fn injected(policy: &Path, pod: &Value) -> Value {
    let (mut evaluate, _file) = inject(policy, pod);
    from_str(&rendered(&mut evaluate)).unwrap()
}

/// Returns the command, and the file with the pod, which it reads.
fn inject(policy: &Path, pod: &Value) -> (Command, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(serde_norway::to_string(pod).unwrap().as_bytes()).unwrap();
    // scripts/test says which of several has the library.
    let python = std::env::var_os("CEL_PYTHON").unwrap_or_else(|| "python3".into());
    let mut evaluate = Command::new(python);
    evaluate.arg("tests/inject.py").arg(policy).arg(file.path());
    (evaluate, file)
}

/// Kubernetes' schemas of this version know every field.
#[track_caller]
fn valid(documents: &[Value], version: &str) {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    for document in documents {
        write!(file, "---\n{}", serde_norway::to_string(document).unwrap()).unwrap();
    }
    let mut validate = Command::new("kubernetes-validate");
    runs(validate.args(["--strict", "-k", version]).arg(file.path()));
}

#[test]
fn helm_tests_that_the_members_know_a_leader() {
    let documents = chart("{}");
    let test = named(&documents, "Pod", "example-test");
    assert_eq!(test["metadata"]["annotations"]["helm.sh/hook"], "test");
    let service = named(&documents, "Service", "example-members");
    let selector = service["spec"]["selector"].as_mapping().unwrap();
    let labels = &test["metadata"]["labels"];
    assert!(selector.iter().any(|(key, value)| labels[key] != *value), "it is no member");
    let [container] = &containers_of(&test["spec"], "leader")[..] else { panic!("{test:?}") };
    let arguments: Vec<_> = list(&container["args"]).iter().map(text).collect();
    let ["leader", "--url", "http://example-members:4041"] = arguments[..] else {
        panic!("{arguments:?}")
    };
    assert_eq!(service["spec"]["ports"][0]["port"], 4041);
    assert!(chart("{example: false}").is_empty());
}

#[test]
fn who_installs_the_chart_is_told_how_to_see_the_leader() {
    let mut helm = Command::new("helm");
    helm.args(["install", "example", CHART, "--dry-run=client", "--namespace", "shop"]);
    let said = rendered(helm.args(["--set", "route=haproxy"]));
    for line in [
        "kubectl -n shop exec deploy/example -c bellwether -- /bellwether members",
        "http://example-members.shop:4041/leader",
        "http://example.shop/",
        "helm -n shop test example",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

#[test]
fn the_published_chart_has_the_published_image_and_links() {
    let place = tempfile::tempdir().unwrap();
    let documents = "https://example.org/blob/v1/";
    let mut release = Command::new("scripts/release-chart");
    runs(release.args(["registry.example/bellwether", documents]).arg(place.path()));
    let package = place.path().join(format!("bellwether-{}.tgz", env!("CARGO_PKG_VERSION")));
    let mut helm = Command::new("helm");
    helm.args(["template", "x", "--set", "monitoring.enabled=true"]).arg(package);
    let rendered = rendered(&mut helm);
    let image = format!("registry.example/bellwether:{}", env!("CARGO_PKG_VERSION"));
    let parsed = parsed(&rendered);
    let [sidecar] = &containers(named(&parsed, "Deployment", "x"), "bellwether")[..] else {
        panic!("{rendered}")
    };
    assert_eq!(text(&sidecar["image"]), image);
    let link = format!("runbook_url: {documents}docs/operations.md#bellwethernoleader");
    assert!(rendered.contains(&link), "{rendered}");
    for (name, has) in [("alerts.yaml", link), ("inject.yaml", format!("image: {image:?}"))] {
        assert!(fs::read_to_string(place.path().join(name)).unwrap().contains(&has), "{name}");
    }
}

/// docs/reference/supported-servers.md says why: others can lose what they have acknowledged.
#[test]
fn the_servers_of_the_examples_are_recommended() {
    let mut seen = 0;
    for path in ["deploy/compose.yaml", "deploy/kubernetes/zookeeper.yaml"] {
        let manifest = fs::read_to_string(path).unwrap();
        for tag in manifest.split("image: zookeeper:").skip(1) {
            seen += 1;
            let tag = tag.split_whitespace().next().unwrap();
            let version: Vec<u32> = tag.split('.').map(|part| part.parse().unwrap()).collect();
            let is_recommended = match version[..] {
                [3, 8, patch] => patch >= 5,
                [3, 9, patch] => patch >= 4,
                _ => false,
            };
            assert!(is_recommended, "{path}: {tag}");
        }
    }
    assert_eq!(seen, 2);
}

/// Others read where it is that a script has made something.
#[test]
fn a_script_that_installs_something_says_so_on_standard_error() {
    let stub = tempfile::tempdir().unwrap();
    let program = stub.path().join("apt-get");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let installs =
        ". scripts/lib.sh; as_root() { \"$@\"; }; want man-db /nowhere/man; install_wanted";
    let path = format!("{}:{}", stub.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash").args(["-euc", installs]).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "== install: man-db\n");
}

/// By hand, even on a tag, it builds and publishes nothing.
#[test]
fn a_release_is_published_only_when_its_tag_is_pushed() {
    let workflow = release_workflow();
    let jobs = workflow["jobs"].as_mapping().unwrap();
    let (builds, publishes): (Vec<_>, Vec<_>) =
        jobs.iter().partition(|(_, job)| job["if"].is_null());
    assert!(publishes.len() >= 4, "{publishes:?}");
    let steps = builds.iter().flat_map(|(_, job)| list(&job["steps"]));
    let attests: Vec<_> =
        steps.filter(|step| uses(step, "actions/attest@")).map(|step| &step["if"]).collect();
    assert!(attests.len() >= 3, "{attests:?}");
    let conditions = publishes.iter().map(|(_, job)| &job["if"]).chain(attests);
    for condition in conditions {
        assert_eq!(text(condition), "github.event_name == 'push'");
    }
}

#[test]
fn what_is_released_is_built_with_one_rust_and_has_the_bill_of_materials_of_its_features() {
    let workflow = release_workflow();
    let job = &workflow["jobs"]["binaries"];
    let toolchain = text(&job["env"]["RUSTUP_TOOLCHAIN"]);
    let image = text(&job["container"]["image"]);
    assert!(image.starts_with(&format!("rust:{toolchain}-")), "{image}: {toolchain}");
    let steps = list(&job["steps"]);
    let bills = steps.iter().filter(|step| !step["with"]["sbom-path"].is_null());
    let bill = |subject: &str| {
        let mut fitting =
            bills.clone().filter(|step| text(&step["with"]["subject-path"]).contains(subject));
        let step = fitting.next().unwrap_or_else(|| panic!("none for {subject}"));
        Path::new(text(&step["with"]["sbom-path"]))
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    let commands: String = steps
        .iter()
        .filter_map(|step| step["run"].as_str())
        .map(|run| run.replace("\\\n", " "))
        .collect();
    for (subject, is_with_kerberos) in [("bellwether-a*", false), ("*.deb", true)] {
        let file = bill(subject);
        let name = format!("--override-filename {}", file.strip_suffix(".json").unwrap());
        let command =
            commands.lines().find(|line| line.ends_with(&name)).unwrap_or_else(|| panic!("{file}"));
        assert_eq!(
            command.contains("--features kerberos"),
            is_with_kerberos,
            "{subject}: {command}"
        );
    }
}

fn release_workflow() -> Value {
    from_str(&fs::read_to_string(".github/workflows/release.yml").unwrap()).unwrap()
}

fn uses(step: &Value, action: &str) -> bool {
    step["uses"].as_str().is_some_and(|used| used.starts_with(action))
}

/// Actions by commit and images by digest, no more rights than are used, and nothing of others in a shell.
#[test]
fn nothing_is_wrong_with_the_workflows() {
    runs(Command::new("zizmor").args(["--offline", "--quiet", ".github/workflows"]));
    // A tag is enough for it.
    for entry in fs::read_dir(".github/workflows").unwrap() {
        let workflow = fs::read_to_string(entry.unwrap().path()).unwrap();
        let mut images = workflow.lines().filter(|line| line.trim().starts_with("image: "));
        assert!(images.all(|line| line.contains("@sha256:")), "{workflow}");
    }
}

#[test]
fn each_sidecar_keeps_its_session_in_memory_that_goes_with_the_pod() {
    let mut seen = 0;
    for (_, document) in documents() {
        let pod = &document["spec"]["template"]["spec"];
        if !containers_of(pod, "bellwether").is_empty() {
            seen += 1;
            keeps_its_session_alone(pod);
        }
    }
    assert!(seen >= 5, "each way has members, and these are {seen}");
}

/// The session file is on a volume in memory, which no other container of the pod mounts: it holds a secret.
#[track_caller]
fn keeps_its_session_alone(pod: &Value) {
    let [sidecar] = &containers_of(pod, "bellwether")[..] else { panic!("{pod:?}") };
    let variable = list(&sidecar["env"]).iter().find(|it| it["name"] == "BELLWETHER_SESSION_FILE");
    let file = Path::new(text(&variable.expect("it is set")["value"]));
    let holds = |mount: &&Value| Some(Path::new(text(&mount["mountPath"]))) == file.parent();
    let mount = list(&sidecar["volumeMounts"]).iter().find(holds).expect("it is mounted");
    let volume = list(&pod["volumes"]).iter().find(|volume| volume["name"] == mount["name"]);
    assert_eq!(volume.expect("it is a volume")["emptyDir"]["medium"], "Memory", "{pod:?}");
    let all = list(&pod["initContainers"]).iter().chain(list(&pod["containers"]));
    let mounts = all.flat_map(|container| list(&container["volumeMounts"]));
    assert_eq!(mounts.filter(|it| it["name"] == mount["name"]).count(), 1, "{pod:?}");
}

/// As `helm template` renders the chart with these values.
#[track_caller]
fn chart(values: &str) -> Vec<Value> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(values.as_bytes()).unwrap();
    let mut helm = Command::new("helm");
    helm.args(["template", "example", CHART, "--kube-version", VERSIONS[0], "--values"]);
    parsed(&rendered(helm.arg(file.path())))
}

#[track_caller]
fn named<'a>(documents: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == name;
    documents.iter().find(is).unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn a_variable_of_ones_own_takes_the_place_of_the_charts() {
    let documents = chart(
        "{bellwether: {election: /$(POD_NAMESPACE)/of-mine, env: [ \
            {name: MY_HOST, value: app.example}, \
            {name: BELLWETHER_ADDRESS, value: '$(MY_HOST):9000'}, \
            {name: BELLWETHER_LOG_FORMAT, value: json}, {name: POD_NAME, value: me}]}, \
          app: {env: [{name: ELECTOR_GET_URL, value: none}]}}",
    );
    let [app] = &containers(named(&documents, "Deployment", "example"), "app")[..] else {
        panic!()
    };
    let urls: BTreeMap<_, _> =
        list(&app["env"]).iter().map(|it| (text(&it["name"]), text(&it["value"]))).collect();
    assert_eq!((list(&app["env"]).len(), urls.len()), (3, 3), "{urls:?}");
    assert_eq!(urls["ELECTOR_GET_URL"], "none");
    let [sidecar] = &containers(named(&documents, "Deployment", "example"), "bellwether")[..]
    else {
        panic!()
    };
    let variables = variables_of(sidecar);
    for (name, value) in [
        ("BELLWETHER_ADDRESS", "app.example:9000"),
        ("BELLWETHER_ELECTION", "/default/of-mine"),
        ("POD_NAME", "me"),
    ] {
        assert!(variables.contains(&(name.into(), value.into())), "{name}: {variables:?}");
    }
    understands(Path::new(CHART), &variables);
}

/// `curl localhost/leader`: any user may listen at port 80 of a pod with this sysctl, and no pod has it otherwise.
#[test]
fn a_low_port_needs_a_sysctl_of_the_pod_and_no_capability() {
    for (port, sysctl) in [("80", Some("80")), ("1023", Some("1023")), ("1024", None)] {
        let documents = chart(&format!("bellwether: {{port: {port}}}"));
        let deployment = named(&documents, "Deployment", "example");
        let sysctls = &deployment["spec"]["template"]["spec"]["securityContext"]["sysctls"];
        let expected = sysctl.map(|from| {
            format!("[{{name: net.ipv4.ip_unprivileged_port_start, value: '{from}'}}]")
        });
        let expected = expected.map_or(Value::Null, |list| from_str(&list).unwrap());
        assert_eq!(*sysctls, expected, "{port}");
        let value = |container: &str, name: &str| {
            let [container] = &containers(deployment, container)[..] else { panic!() };
            let mut variables = list(&container["env"]).iter();
            text(&variables.find(|it| it["name"] == name).unwrap()["value"]).to_owned()
        };
        assert_eq!(value("bellwether", "BELLWETHER_LISTEN"), format!("127.0.0.1:{port}"));
        assert_eq!(value("app", "BELLWETHER_URL"), format!("http://127.0.0.1:{port}"));
    }
}

#[test]
fn a_pod_of_an_ipv6_cluster_listens_there_and_tells_an_address_that_is_one() {
    let documents = chart("{ipFamily: IPv6, route: haproxy}");
    let [sidecar] = &containers(named(&documents, "Deployment", "example"), "bellwether")[..]
    else {
        panic!()
    };
    let value = |name: &str| {
        let variable = list(&sidecar["env"]).iter().find(|it| it["name"] == name).unwrap();
        expanded(text(&variable["value"]), &[("POD_IP".to_owned(), "fd00::7".to_owned())])
    };
    let address = value("BELLWETHER_ADDRESS");
    assert_eq!(address, "[fd00::7]:8080");
    address.parse::<std::net::SocketAddrV6>().unwrap();
    assert_eq!(value("BELLWETHER_PROBE_LISTEN"), "[::]:4041");
    haproxy_understands(&documents);
}

#[test]
fn policies_open_the_ports_of_zookeeper_and_no_others() {
    let open = |values: &str| -> Vec<u64> {
        let documents = chart(values);
        let policy = named(&documents, "NetworkPolicy", "example");
        let rule = &policy["spec"]["egress"][0];
        assert!(!list(&rule["to"]).is_empty(), "{values}");
        list(&rule["ports"]).iter().map(|port| port["port"].as_u64().unwrap()).collect()
    };
    assert_eq!(open("{}"), [2181]);
    assert_eq!(open("{networkPolicy: {ports: []}}"), [2181]);
    assert_eq!(open("{networkPolicy: {ports: [2181, 2281]}}"), [2181, 2281]);
    let servers = "'zk:2281,[fd00::1]:2282,other/a:9/b'";
    assert_eq!(open(&format!("{{bellwether: {{zookeeper: {servers}}}}}")), [2281, 2282, 2181]);
    let variable = format!("[{{name: BELLWETHER_ZOOKEEPER, value: {servers}}}]");
    assert_eq!(open(&format!("{{bellwether: {{env: {variable}}}}}")), [2281, 2282, 2181]);
}

#[test]
fn pods_are_made_anew_when_their_configuration_is_another() {
    let checksum = |values: &str, name: &str| {
        let documents = chart(values);
        let template = &named(&documents, "Deployment", name)["spec"]["template"];
        text(&template["metadata"]["annotations"]["checksum/config"]).to_owned()
    };
    for (name, usual, same, other) in [
        (
            "example",
            "{route: label}",
            "{route: label, replicas: 5}",
            "{route: label, podLabel: mine/role}",
        ),
        (
            "example-haproxy",
            "{route: haproxy}",
            "{route: haproxy, replicas: 5}",
            "{route: haproxy, app: {port: 9000}}",
        ),
    ] {
        assert_eq!(checksum(usual, name), checksum(same, name), "{name}");
        assert_ne!(checksum(usual, name), checksum(other, name), "{name}");
    }
}

#[test]
fn what_is_said_of_pods_is_said_of_all() {
    let documents = chart(
        "{route: haproxy, imagePullSecrets: [{name: mine}], nodeSelector: {disk: fast}, \
          tolerations: [{operator: Exists}], podLabels: {team: one}, podAnnotations: {a/b: c}, \
          clusterDomain: k8s.example}",
    );
    for name in ["example", "example-haproxy"] {
        let template = &named(&documents, "Deployment", name)["spec"]["template"];
        assert_eq!(template["metadata"]["labels"]["team"], "one", "{name}");
        assert_eq!(template["metadata"]["annotations"]["a/b"], "c", "{name}");
        assert_eq!(template["spec"]["imagePullSecrets"][0]["name"], "mine", "{name}");
        assert_eq!(template["spec"]["nodeSelector"]["disk"], "fast", "{name}");
        assert_eq!(template["spec"]["tolerations"][0]["operator"], "Exists", "{name}");
        let spread = list(&template["spec"]["topologySpreadConstraints"]);
        let [spread] = spread else { panic!("{name}: {spread:?}") };
        let selected = &named(&documents, "Deployment", name)["spec"]["selector"];
        assert_eq!(spread["labelSelector"], *selected, "{name}");
        let budget = named(&documents, "PodDisruptionBudget", name);
        assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow", "{name}");
    }
    let haproxy = named(&documents, "Deployment", "example-haproxy");
    let [haproxy] = &containers(haproxy, "haproxy")[..] else { panic!() };
    let members = list(&haproxy["env"]).iter().find(|it| it["name"] == "MEMBERS").unwrap();
    let members = text(&members["value"]);
    assert!(members.ends_with(".svc.k8s.example"), "{members}");
    valid(&documents, VERSIONS[0]);
}

#[test]
fn haproxy_can_read_its_configuration_and_has_room_for_more_members() {
    let manifest = fs::read_to_string("deploy/kubernetes/behind-haproxy.yaml").unwrap();
    let places = |documents: &[Value]| -> u32 {
        let config = haproxy_understands(documents);
        let places = config.split("server-template member ").nth(1).unwrap();
        places.split(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(places(&parsed(&manifest)), 50);
    assert_eq!(places(&chart("{route: haproxy, replicas: 40}")), 85, "a rollout has more");
}

/// HAProxy's own judgement of its configuration, which is returned.
fn haproxy_understands(documents: &[Value]) -> String {
    let config = named(documents, "ConfigMap", "example-haproxy");
    let config = text(&config["data"]["haproxy.cfg"]);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(config.as_bytes()).unwrap();
    runs(
        Command::new("haproxy")
            .args(["-c", "-f"])
            .arg(file.path())
            .env("MEMBERS", "example-members.default.svc.cluster.local"),
    );
    config.to_owned()
}

#[test]
fn compose_knows_every_field() {
    let schema = ["--builtin-schema", "vendor.compose-spec"];
    runs(Command::new("check-jsonschema").args(schema).arg("deploy/compose.yaml"));
}

/// A port of the host may be taken.
#[test]
fn compose_publishes_at_ports_of_your_choice() {
    for (service, variable) in [("a", "PORT_A"), ("b", "PORT_B"), ("c", "PORT_C")] {
        let compose = compose();
        let [port] = list(&compose["services"][service]["ports"]) else { panic!("{compose:?}") };
        assert!(text(port).starts_with(&format!("127.0.0.1:${{{variable}:-404")), "{port:?}");
    }
}

/// What it would fail for after minutes is said before anything is installed or built.
#[test]
fn a_static_build_says_at_once_what_it_lacks() {
    let mut few_files = Command::new("prlimit");
    few_files.args(["--nofile=1024:1024", "scripts/static"]);
    let said = fails(&mut few_files);
    assert!(said.contains("the limit of open files is 1024, and the linker needs"), "{said}");
    let bare = directory_of(&["bash", "dirname", "uname"]);
    let home = [("PATH", bare.path()), ("HOME", bare.path()), ("CARGO_HOME", bare.path())];
    let said = fails(Command::new("scripts/static").envs(home));
    assert!(said.starts_with("static: missing: cargo and rustc."), "{said}");
}

/// As root of a user namespace, which any user may be.
#[test]
fn where_no_container_can_be_run_that_is_said_and_is_no_failure() {
    let bare = directory_of(&["bash", "dirname", "unshare", "mount"]);
    let mut no_engine = Command::new("unshare");
    no_engine.args(["--map-root-user", "--", "scripts/containers"]).env("PATH", bare.path());
    let said = runs(&mut no_engine);
    assert_eq!(said, "== containers: skipped: there is neither podman nor apt-get to install it\n");

    let mut no_right = Command::new("unshare");
    let without =
        ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "scripts/containers"];
    no_right.args(["--map-root-user", "--"]).args(without);
    assert_eq!(runs(&mut no_right), "== containers: skipped: no namespaces can be made here\n");
}

#[test]
fn systemd_is_content_with_the_unit() {
    let unit = "deploy/systemd/bellwether.service";
    let guide = fs::read_to_string("deploy/README.md").unwrap();
    let quoted = guide.split("calls its exposure ").nth(1).unwrap();
    // Of ten, where lower is safer; the limit is of a hundred.
    let limit = quoted.split(',').next().unwrap().replace('.', "");
    let threshold = format!("--threshold={limit}");
    let security = ["security", "--offline=true", "--no-pager", &threshold, unit];
    runs(Command::new("systemd-analyze").args(security));
    systemd_verifies(&fs::read_to_string(unit).unwrap());
}

/// It has nothing to say of the unit, with everything where the package would put it. What does not exist is reported.
#[track_caller]
fn systemd_verifies(unit: &str) {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    for program in ["usr/bin/bellwether", "bin/kill"] {
        runs(Command::new("install").args(["-m", "755", "/bin/true"]).arg(path(program)));
    }
    fs::write(path("usr/lib/systemd/system/bellwether.service"), unit).unwrap();
    let said =
        runs(
            Command::new("systemd-analyze")
                .arg(format!("--root={}", root.path().display()))
                .args(["verify", "--man=no", "--recursive-errors=no", "bellwether.service"]),
        );
    assert_eq!(said, "");
}

#[test]
fn the_units_environment_is_understood_once_it_is_uncommented() {
    let sample = fs::read_to_string("deploy/systemd/bellwether.default").unwrap();
    let variables: Vec<_> = sample
        .lines()
        .filter_map(|line| line.strip_prefix('#')?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    assert!(variables.len() > 4, "{sample}");
    understands(Path::new("bellwether.default"), &variables);
}

/// What the application is to read and to ask is in the directory that the unit makes, which others may enter.
#[test]
fn the_unit_has_the_directory_that_the_samples_name() {
    let unit = fs::read_to_string("deploy/systemd/bellwether.service").unwrap();
    let says = |line: &str| unit.lines().any(|it| it == line);
    assert!(says("RuntimeDirectory=bellwether") && says("RuntimeDirectoryMode=0755"), "{unit}");
    for (file, named) in [
        ("docs/hooks.md", "file = \"/run/bellwether/leader.json\""),
        ("config/bellwether.toml", "file = \"/run/bellwether/leader.json\""),
        ("config/bellwether.toml", "unix:/run/bellwether/bellwether.sock"),
    ] {
        assert!(fs::read_to_string(file).unwrap().contains(named), "{file}: {named}");
    }
}

/// It is in the unit's own directory, which is in memory and outlives a process that is started again.
#[test]
fn the_unit_keeps_the_session_over_a_restart() {
    let unit = fs::read_to_string("deploy/systemd/bellwether.service").unwrap();
    let says = |line: &str| unit.lines().any(|it| it == line);
    assert!(says("Restart=on-failure") && says("RuntimeDirectoryPreserve=restart"), "{unit}");
    assert!(says("Environment=BELLWETHER_SESSION_FILE=/run/bellwether/session"), "{unit}");
}

/// What is proposed in comments is what systemd knows, too.
#[test]
fn the_units_proposals_are_understood_once_they_are_uncommented() {
    let unit = fs::read_to_string("deploy/systemd/bellwether.service").unwrap();
    let is_proposal =
        |line: &str| line.strip_prefix('#').is_some_and(|it| it.starts_with(char::is_uppercase));
    assert_eq!(unit.lines().filter(|line| is_proposal(line)).count(), 7, "{unit}");
    let lines = unit.lines().map(|line| if is_proposal(line) { &line[1..] } else { line });
    systemd_verifies(&lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn one_version_is_in_everything() {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let chart: Value =
        from_str(&fs::read_to_string(format!("{CHART}/Chart.yaml")).unwrap()).unwrap();
    assert_eq!([&chart["version"], &chart["appVersion"]].map(text), [VERSION; 2]);
    let values: Value =
        from_str(&fs::read_to_string(format!("{CHART}/values.yaml")).unwrap()).unwrap();
    assert_eq!(text(&values["bellwether"]["image"]), format!("bellwether:{VERSION}"));
    let images = text(&chart["annotations"]["artifacthub.io/images"]);
    assert!(images.contains(&format!("image: bellwether:{VERSION}\n")), "{images}");
    let mut bases = BTreeSet::new();
    for name in ["Dockerfile", "Dockerfile.kerberos"] {
        let dockerfile = fs::read_to_string(name).unwrap();
        assert!(dockerfile.contains(&format!("image.version=\"{VERSION}\"")), "{name}");
        let base = dockerfile.lines().find_map(|line| line.strip_prefix("ARG RUST=")).unwrap();
        bases.insert(base.to_owned());
    }
    assert_eq!(bases.len(), 1, "{bases:?}");
}

/// A tag can be another image tomorrow.
#[test]
fn each_base_image_has_a_digest() {
    for name in ["Dockerfile", "Dockerfile.kerberos"] {
        let dockerfile = fs::read_to_string(name).unwrap();
        let images = dockerfile.lines().filter_map(|line| line.strip_prefix("FROM "));
        let mut seen = 0;
        for image in images {
            let image = image.split(' ').find(|word| !word.starts_with("--")).unwrap();
            let default = image.strip_prefix('$').map(|argument| {
                let argument = format!("ARG {argument}=");
                dockerfile.lines().find_map(|line| line.strip_prefix(&argument)).unwrap()
            });
            let image = default.unwrap_or(image);
            seen += 1;
            assert!(image == "scratch" || image.contains("@sha256:"), "{name}: {image}");
        }
        assert_eq!(seen, 2, "{name}");
    }
}

/// What the Dockerfile copies is what its build may see.
#[test]
fn the_build_of_the_image_sees_what_it_copies() {
    let seen = fs::read_to_string(".dockerignore").unwrap();
    let seen: BTreeSet<_> = seen.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let dockerfiles = ["Dockerfile", "Dockerfile.kerberos"];
    let dockerfile = dockerfiles.map(|name| fs::read_to_string(name).unwrap()).concat();
    let copies = dockerfile.lines().filter_map(|line| line.strip_prefix("COPY "));
    let copied: BTreeSet<_> = copies
        .filter(|line| !line.starts_with("--from"))
        .flat_map(|line| line.split(' ').rev().skip(1))
        .collect();
    for path in &copied {
        let is_seen = Path::new(path).ancestors().any(|it| seen.contains(it.to_str().unwrap()));
        assert!(is_seen, "{path} is copied and not seen");
    }
    for path in seen {
        assert!(copied.contains(path), "{path} is seen and not copied");
        assert!(Path::new(path).exists(), "{path}");
    }
}

/// Nor are there any tests: cargo looks for those whose path it is not told.
#[test]
fn the_build_of_the_image_is_told_where_each_test_would_be() {
    for manifest in ["Cargo.toml", "crates/dev-server/Cargo.toml", "crates/recipes/Cargo.toml"] {
        let read: Value = toml::from_str(&fs::read_to_string(manifest).unwrap()).unwrap();
        let targets = ["test", "bench"].map(|kind| read[kind].as_sequence());
        for target in targets.into_iter().flatten().flatten() {
            assert!(target["path"].is_string(), "{manifest}: {target:?}");
        }
    }
}

fn manifests() -> Vec<PathBuf> {
    let files = fs::read_dir("deploy/kubernetes").unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect();
    files.sort();
    files
}

fn documents() -> Vec<(PathBuf, Value)> {
    let read = |path: PathBuf| {
        let documents = parsed(&fs::read_to_string(&path).unwrap());
        documents.into_iter().map(move |document| (path.clone(), document))
    };
    manifests().into_iter().flat_map(read).collect()
}

fn parsed(yaml: &str) -> Vec<Value> {
    let documents = Deserializer::from_str(yaml).map(|it| Value::deserialize(it).unwrap());
    documents.filter(|document| !document.is_null()).collect()
}

fn compose() -> Value {
    let mut compose: Value = from_str(&fs::read_to_string("deploy/compose.yaml").unwrap()).unwrap();
    compose.apply_merge().unwrap();
    compose
}

fn containers(document: &Value, name: &str) -> Vec<Value> {
    containers_of(&document["spec"]["template"]["spec"], name)
}

fn containers_of(pod: &Value, name: &str) -> Vec<Value> {
    let all = list(&pod["initContainers"]).iter().chain(list(&pod["containers"]));
    all.filter(|container| container["name"] == name).cloned().collect()
}

/// As they are in a container that runs, in their order.
#[track_caller]
fn variables_of(container: &Value) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = vec![];
    for variable in list(&container["env"]) {
        let name = text(&variable["name"]).to_owned();
        assert!(variables.iter().all(|(known, _)| *known != name), "{name} twice");
        let value = match &variable["valueFrom"]["fieldRef"]["fieldPath"] {
            Value::String(field) => of_a_pod(field).to_owned(),
            _ => expanded(text(&variable["value"]), &variables),
        };
        variables.push((name, value));
    }
    variables
}

/// The file that this container is configured by, as the config map in the same manifest has it.
fn config_beside(path: &Path, container: &Value) -> Option<tempfile::NamedTempFile> {
    let mut variables = list(&container["env"]).iter();
    let place = variables.find(|it| it["name"] == "BELLWETHER_CONFIG")?;
    let place = Path::new(text(&place["value"]));
    let mount = list(&container["volumeMounts"])
        .iter()
        .find(|it| Path::new(text(&it["mountPath"])) == place.parent().unwrap())
        .expect("it is mounted");
    let documents = parsed(&fs::read_to_string(path).unwrap());
    let pods = documents.iter().map(|it| &it["spec"]["template"]["spec"]);
    let volume = pods
        .flat_map(|pod| list(&pod["volumes"]))
        .find(|volume| volume["name"] == mount["name"])
        .expect("it is a volume");
    let name = &volume["configMap"]["name"];
    let map =
        documents.iter().find(|it| it["kind"] == "ConfigMap" && it["metadata"]["name"] == *name);
    let key = place.file_name().unwrap().to_str().unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text(&map.expect("a config map")["data"][key]).as_bytes()).unwrap();
    Some(file)
}

fn list(value: &Value) -> &[Value] {
    value.as_sequence().map_or(&[], Vec::as_slice)
}

#[track_caller]
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value:?}"))
}

/// What the downward API says.
fn of_a_pod(field: &str) -> &'static str {
    match field {
        "metadata.name" => "example-0",
        "metadata.namespace" => "default",
        "status.podIP" => "10.0.0.7",
        "metadata.annotations['bellwether.io/inject']" => "shop",
        other => panic!("not looked for here: {other}"),
    }
}

/// As Kubernetes replaces $(NAME), by what stands before it.
fn expanded(value: &str, before: &[(String, String)]) -> String {
    let replace =
        |value: String, (name, with): &(String, String)| value.replace(&format!("$({name})"), with);
    let value = before.iter().fold(value.to_owned(), replace);
    assert!(!value.contains("$("), "{value}: of a variable that does not stand before it");
    value
}

/// Every variable of ours is one that counts, and the whole makes sense.
#[track_caller]
fn understands(path: &Path, variables: &[(String, String)]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    command.arg("check-config").env_clear().envs(variables.iter().cloned());
    // As they are in every pod.
    let api = [("KUBERNETES_SERVICE_HOST", "10.96.0.1"), ("KUBERNETES_SERVICE_PORT", "443")];
    command.envs(api);
    let said = runs(&mut command);
    for (name, value) in variables.iter().filter(|(name, _)| name.starts_with("BELLWETHER_")) {
        if name == "BELLWETHER_CONFIG" {
            let hooks = fs::read_to_string(value).unwrap().matches("[[hook]]").count();
            assert_eq!(said.matches("\nhook[").count(), hooks, "{path:?}: {said}");
            continue;
        }
        assert!(said.contains(&format!(" {name}")), "{path:?}: {name} counts for nothing\n{said}");
    }
}

/// For a path that has these tools and no others.
fn directory_of(tools: &[&str]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for tool in tools {
        let found = runs(Command::new("sh").args(["-c", &format!("command -v {tool}")]));
        std::os::unix::fs::symlink(found.trim(), directory.path().join(tool)).unwrap();
    }
    directory
}

#[track_caller]
fn runs(command: &mut Command) -> String {
    let (well, said) = ran(command);
    assert!(well, "{command:?}\n{said}");
    said
}

/// What goes to standard output. Helm has remarks of its own beside it.
#[track_caller]
fn rendered(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn fails(command: &mut Command) -> String {
    let (well, said) = ran(command);
    assert!(!well, "{command:?}\n{said}");
    said
}

#[track_caller]
fn ran(command: &mut Command) -> (bool, String) {
    let program = command.get_program().to_owned();
    let output =
        command.output().unwrap_or_else(|error| panic!("{program:?} (see scripts/test): {error}"));
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}
