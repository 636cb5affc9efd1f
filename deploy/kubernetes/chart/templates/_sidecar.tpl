{{- /* The sidecar's container. A chart that depends on this one calls it with a context whose Values are this
chart's: (dict "Values" .Values.bellwether "Release" .Release "Capabilities" .Capabilities), with "group" "NAME" for each of several
elections. */}}
{{- define "bellwether.sidecar" -}}
{{- if and (eq .Values.sidecar "native") .Capabilities (semverCompare "<1.29.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail "sidecar: native needs Kubernetes 1.29 or newer, else it would never let the application start; take classic" }}
{{- end -}}
{{- $port := int .Values.bellwether.port }}
{{- if eq $port 4041 }}
{{- fail "bellwether.port: 4041 is where probes are answered; take another" }}
{{- end }}
{{- if has (int .Values.app.port) (list $port 4041) }}
{{- fail (printf "app.port: %d is Bellwether's own in each pod, as %d and 4041 are; give the application another" (int .Values.app.port) $port) }}
{{- end -}}
{{- $ipv6 := eq .Values.ipFamily "IPv6" }}
{{- /* What the values set by its name takes the place of ours. The rest stands before ours, so that ours can refer to it. */}}
{{- $theirs := dict }}
{{- range .Values.bellwether.env }}
{{- if hasKey $theirs .name }}
{{- fail (printf "bellwether.env has %s twice" .name) }}
{{- end }}
{{- if and (eq .name "BELLWETHER_PROBE_LISTEN") (not (hasSuffix ":4041" (get . "value" | toString))) }}
{{- fail "bellwether.env: BELLWETHER_PROBE_LISTEN must end in :4041, where Services, probes and the NetworkPolicy look for it" }}
{{- end }}
{{- $_ := set $theirs .name . }}
{{- end -}}
- name: bellwether
  image: {{ .Values.bellwether.image }}
  {{- if eq .Values.sidecar "native" }}
  # An init container that goes on running is a native sidecar: it starts before the application and ends after it.
  restartPolicy: Always
  {{- end }}
  args: [run]
  env:
    # The member's id.
    {{- include "bellwether.variable" (list $theirs "POD_NAME" "valueFrom: {fieldRef: {fieldPath: metadata.name}}") | nindent 4 }}
    {{- include "bellwether.variable" (list $theirs "POD_IP" "valueFrom: {fieldRef: {fieldPath: status.podIP}}") | nindent 4 }}
    {{- include "bellwether.variable" (list $theirs "POD_NAMESPACE" "valueFrom: {fieldRef: {fieldPath: metadata.namespace}}") | nindent 4 }}
    {{- $ours := list "POD_NAME" "POD_IP" "POD_NAMESPACE" "BELLWETHER_ADDRESS" "BELLWETHER_ZOOKEEPER" "BELLWETHER_ELECTION" "BELLWETHER_RECIPES_ROOT" "BELLWETHER_SESSION_TIMEOUT" "BELLWETHER_SESSION_FILE" "BELLWETHER_TICK_TIME" "BELLWETHER_PROBE_LISTEN" }}
    {{- with .group }}
    {{- include "bellwether.variable" (list $theirs "GROUP" (printf "value: %q" .)) | nindent 4 }}
    {{- $ours = append $ours "GROUP" }}
    {{- end }}
    {{- if include "bellwether.usesApi" . }}
    {{- $ours = append $ours "BELLWETHER_CONFIG" }}
    {{- end }}
    {{- if ne $port 4040 }}
    {{- $ours = append $ours "BELLWETHER_LISTEN" }}
    {{- end }}
    {{- range .Values.bellwether.env }}
    {{- if not (has .name $ours) }}
    {{- toYaml (list .) | nindent 4 }}
    {{- end }}
    {{- end }}
    # Where this replica is found while it leads.
    {{- $address := printf (ternary "[$(POD_IP)]:%d" "$(POD_IP):%d" $ipv6) (int .Values.app.port) }}
    {{- include "bellwether.variable" (list $theirs "BELLWETHER_ADDRESS" (printf "value: %q" $address)) | nindent 4 }}
    {{- include "bellwether.variable" (list $theirs "BELLWETHER_ZOOKEEPER" (printf "value: %q" .Values.bellwether.zookeeper)) | nindent 4 }}
    {{- $default := printf "/$(POD_NAMESPACE)/%s" (include "bellwether.group" .) }}
    {{- $election := .Values.bellwether.election | default $default }}
    {{- $counts := include "bellwether.setting" (list . "BELLWETHER_ELECTION" $election) }}
    {{- if and .group $counts (ne $counts $default) (not (regexMatch "(^|[^$])[$][(]GROUP[)]" $counts)) }}
    {{- fail (printf "the election %q would be that of several groups; it must contain $(GROUP), or be left empty" $counts) }}
    {{- end }}
    {{- include "bellwether.variable" (list $theirs "BELLWETHER_ELECTION" (printf "value: %q" $election)) | nindent 4 }}
    # Locks, barriers and shared values are below it.
    {{- $root := .Values.bellwether.recipesRoot }}
    {{- include "bellwether.variable" (list $theirs "BELLWETHER_RECIPES_ROOT" (printf "value: %q" $root)) | nindent 4 }}
    {{- range list "locks" "barriers" "config" }}
    {{- $reserved := printf "%s/%s" (trimSuffix "/" $root) . }}
    {{- if hasPrefix (printf "%s/" $reserved) (printf "%s/" ($election | replace "$(GROUP)" ($.group | default "$(GROUP)"))) }}
    {{- fail (printf "the election %q is in %s of bellwether.recipesRoot; give the release another name, or set bellwether.election" $election .) }}
    {{- end }}
    {{- end }}
    {{- include "bellwether.variable" (list $theirs "BELLWETHER_SESSION_TIMEOUT" (printf "value: %q" .Values.bellwether.sessionTimeout)) | nindent 4 }}
    # Lives as long as the pod: a sidecar that is killed and started again goes on with its session.
    {{- include "bellwether.variable" (list $theirs "BELLWETHER_SESSION_FILE" "value: /run/bellwether/session") | nindent 4 }}
    # The servers' tickTime: too small a value makes the lease unsafe.
    {{- include "bellwether.variable" (list $theirs "BELLWETHER_TICK_TIME" (printf "value: %q" .Values.bellwether.tickTime)) | nindent 4 }}
    # The kubelet asks at the pod's address, where loopback does not answer. Only what is read-only is served there;
    # the rest of the API, commands among it, stays on 127.0.0.1:{{ $port }}.
    {{- include "bellwether.variable" (list $theirs "BELLWETHER_PROBE_LISTEN" (printf "value: %q" (ternary "[::]:4041" "0.0.0.0:4041" $ipv6))) | nindent 4 }}
    {{- if ne $port 4040 }}
    {{- include "bellwether.variable" (list $theirs "BELLWETHER_LISTEN" (printf "value: \"127.0.0.1:%d\"" $port)) | nindent 4 }}
    {{- end }}
    {{- if include "bellwether.usesApi" . }}
    # The hook that tells Kubernetes who leads.
    {{- include "bellwether.variable" (list $theirs "BELLWETHER_CONFIG" "value: /etc/bellwether/bellwether.toml") | nindent 4 }}
    {{- end }}
  ports:
    - {name: probes, containerPort: 4041}
  # Passes as soon as it answers, whether or not ZooKeeper is there: an outage must not keep applications from
  # starting. One that has to wait for a leader can ask `GET /leader`.
  startupProbe:
    httpGet: {path: /livez, port: probes}
    periodSeconds: 1
    failureThreshold: 60
  # Fails if the election's loop hangs, never because ZooKeeper does.
  livenessProbe:
    httpGet: {path: /livez, port: probes}
  {{- if eq .Values.route "readiness" }}
  # Counts for the whole pod: ready means that it leads.
  readinessProbe:
    httpGet: {path: /is-leader, port: probes}
    periodSeconds: 1
    failureThreshold: 1
  {{- else if eq .Values.ready "member" }}
  # Counts for the whole pod: ready means that it is in the queue and knows a leader, never that it leads. Leave it
  # out if the application shall get traffic while ZooKeeper is away.
  readinessProbe:
    httpGet: {path: /readyz, port: probes}
    periodSeconds: 5
  {{- end }}
  lifecycle:
    # As soon as the pod is to end, and before Bellwether is told so itself: out of the queue, and leadership handed
    # over if it led. Not httpGet: that comes from outside, and commands are taken on loopback only.
    preStop:
      exec: {command: [/bellwether, drain]}
  # The container's own, for pods that have none.
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
    seccompProfile: {type: RuntimeDefault}
  # No limit on the CPU: being throttled looks like a long pause, and a long pause costs leadership.
  resources:
    {{- toYaml .Values.bellwether.resources | nindent 4 }}
  volumeMounts:
    # This container's alone: who reads the session file can take the session.
    - {name: bellwether-session, mountPath: /run/bellwether}
    {{- if include "bellwether.usesApi" . }}
    - {name: bellwether-config, mountPath: /etc/bellwether, readOnly: true}
    # This container's alone: the application has no token.
    - {name: bellwether-account, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
    {{- end }}
    {{- with .Values.bellwether.volumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- /* The volumes of its pod, with those of the values. */}}
{{- define "bellwether.volumes" -}}
- name: bellwether-session
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- if include "bellwether.usesApi" . }}
- name: bellwether-config
  configMap: {name: {{ include "bellwether.group" . }}-bellwether}
- name: bellwether-account
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The application's variables, as a list. app.env has those of its own. */}}
{{- define "bellwether.environment" -}}
# GET $BELLWETHER_URL/is-leader answers 200 if this replica leads at this moment. The other two are for
# applications that know nais/elector.
{{- $theirs := list }}
{{- range .Values.app.env }}
{{- $theirs = append $theirs .name }}
{{- end }}
{{- range list (list "BELLWETHER_URL" "") (list "ELECTOR_GET_URL" "/") (list "ELECTOR_SSE_URL" "/sse") }}
{{- if not (has (first .) $theirs) }}
- {name: {{ first . }}, value: "http://127.0.0.1:{{ int $.Values.bellwether.port }}{{ last . }}"}
{{- end }}
{{- end }}
{{- with .Values.app.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Not empty if members write to Kubernetes' API. */}}
{{- define "bellwether.usesApi" -}}
{{- if has .Values.route (list "label" "endpointslice") }}yes{{ end }}
{{- end }}

{{- /* The release, and the group if the context has one: the members of one election. */}}
{{- define "bellwether.group" -}}
{{- with .group }}
{{- if not (regexMatch "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" .) }}
{{- fail (printf "group: %q must be lower-case letters, digits and hyphens" .) }}
{{- end }}
{{- end }}
{{- .Release.Name }}{{ with .group }}-{{ . }}{{ end }}
{{- end }}

{{- /* The name of the role and of what comes with it. A chart of one's own has objects with the release's name already. */}}
{{- define "bellwether.role" -}}
{{- include "bellwether.group" . }}{{ if not .Values.example }}-bellwether{{ end }}
{{- end }}

{{- /* The name of the Service that leads to the leader. */}}
{{- define "bellwether.service" -}}
{{- include "bellwether.group" . }}{{ if not .Values.example }}-leader{{ end }}
{{- end }}

{{- /* The account of pods that write to Kubernetes' API. */}}
{{- define "bellwether.account" -}}
{{- .Values.serviceAccount | default (include "bellwether.role" .) }}
{{- end }}

{{- /* What such a route needs beside the pod: the hook's configuration, and an account with a role. Empty for other routes. */}}
{{- define "bellwether.rbac" -}}
{{- if include "bellwether.usesApi" . -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "bellwether.group" . }}-bellwether
  labels:
    {{- include "bellwether.labels" . | nindent 4 }}
data:
  bellwether.toml: |
    {{- include "bellwether.config" . | nindent 4 }}
{{- if not .Values.serviceAccount }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "bellwether.role" . }}
  labels:
    {{- include "bellwether.labels" . | nindent 4 }}
automountServiceAccountToken: false
{{- end }}
---
{{- if eq .Values.route "label" }}
# Kubernetes has no narrower right that would do: the names of a Deployment's pods are not known beforehand, and a role
# cannot say "labels only". A process with this token can change any pod of the namespace, its image among it.
{{- else }}
# For this one object. A process with this token can point the Service at any address.
{{- end }}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ include "bellwether.role" . }}
  labels:
    {{- include "bellwether.labels" . | nindent 4 }}
rules:
  {{- if eq .Values.route "label" }}
  - apiGroups: [""]
    resources: [pods]
    verbs: [patch]
  {{- else }}
  - apiGroups: [discovery.k8s.io]
    resources: [endpointslices]
    resourceNames: [{{ include "bellwether.group" . }}-leader]
    verbs: [get, patch]
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ include "bellwether.role" . }}
  labels:
    {{- include "bellwether.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "bellwether.role" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "bellwether.account" . }}
    namespace: {{ .Release.Namespace }} # where all of this is
{{- end }}
{{- end }}

{{- /* The Service that leads to the leader; with `route: endpointslice` also its slice. Empty with `route: ask`. */}}
{{- define "bellwether.route" -}}
{{- if ne .Values.route "ask" -}}
{{- $slice := lookup "discovery.k8s.io/v1" "EndpointSlice" .Release.Namespace (printf "%s-leader" (include "bellwether.group" .)) }}
{{- if and $slice (ne .Values.route "endpointslice") }}
{{- fail (printf "route: %s: an earlier `route: endpointslice` has left the EndpointSlice %s, whose address would stay beside the others; delete it first: kubectl -n %s delete endpointslice %s" .Values.route $slice.metadata.name .Release.Namespace $slice.metadata.name) }}
{{- end }}
{{- range get ($slice | default dict) "ports" | default list }}
{{- if ne (int .port) (int $.Values.app.port) }}
{{- fail (printf "app.port: the EndpointSlice %s has the port %d; change it first: kubectl -n %s patch endpointslice %s --type=json -p '[{\"op\": \"replace\", \"path\": \"/ports/0/port\", \"value\": %d}]'" $slice.metadata.name (int .port) $.Release.Namespace $slice.metadata.name (int $.Values.app.port)) }}
{{- end }}
{{- end }}
{{- if eq .Values.route "label" -}}
# The pod that is labelled as the leader: for a moment after a hand-over none, or two (deploy/README.md).
{{- else -}}
# The leader alone.
{{- end }}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "bellwether.service" . }}
  labels:
    {{- include "bellwether.labels" . | nindent 4 }}
spec:
  {{- if eq .Values.route "endpointslice" }}
  {{- with lookup "v1" "Service" .Release.Namespace (include "bellwether.service" .) }}
  {{- if .spec.selector }}
  {{- fail (printf "route: endpointslice: the Service %s has a selector, and would keep the endpoints that Kubernetes wrote for it; delete it first, or install a release of another name" .metadata.name) }}
  {{- end }}
  {{- end }}
  # Without a selector: Kubernetes leaves its endpoints to whoever writes them.
  {{- else }}
  selector:
    {{- if eq .Values.route "haproxy" }}
    app.kubernetes.io/name: bellwether-haproxy
    app.kubernetes.io/instance: {{ .Release.Name }}
    {{- else }}
    {{- include "bellwether.labels" . | nindent 4 }}
    {{- if eq .Values.route "label" }}
    {{ .Values.podLabel | quote }}: leader
    {{- end }}
    {{- end }}
  {{- end }}
  ports:
    - {name: http, port: 80, targetPort: {{ eq .Values.route "haproxy" | ternary 8080 .Values.app.port }}}
{{- /* No part of the release: an upgrade, a rollback or a sync would write the endpoints of an earlier leader, or none. */}}
{{- if and (eq .Values.route "endpointslice") (not $slice) }}
---
# The endpoints of the Service: the leader writes its address here. It is created once, and then it is the leader's.
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {{ include "bellwether.group" . }}-leader
  labels:
    {{- include "bellwether.labels" . | nindent 4 }}
    kubernetes.io/service-name: {{ include "bellwether.service" . }}
    endpointslice.kubernetes.io/managed-by: bellwether.io
  annotations:
    # Helm creates it if there is none, and never changes or deletes it. Argo CD leaves it to you.
    helm.sh/hook: pre-install,pre-upgrade
    helm.sh/hook-delete-policy: hook-failed
    argocd.argoproj.io/hook: Skip
addressType: {{ .Values.ipFamily }}
endpoints: []
ports:
  - {name: http, protocol: TCP, port: {{ .Values.app.port }}}
{{- end }}
{{- end }}
{{- end }}

{{- /* A value as CEL writes it: (list "Object.spec.volumes" value), with the path of its field. A map of CEL has values of one
type, so what is one in YAML is an object of CEL, named by its path; all but quantities and other maps of texts. */}}
{{- define "bellwether.cel" -}}
{{- $path := index . 0 }}
{{- $value := index . 1 }}
{{- $parts := list }}
{{- if kindIs "map" $value }}
{{- $is_of_texts := regexMatch "\\.(limits|requests|volumeAttributes|matchLabels|labels|annotations)$" $path }}
{{- range $key, $inner := $value }}
{{- if $is_of_texts }}
{{- $parts = append $parts (printf "%s: %s" ($key | toJson) ($inner | toString | toJson)) }}
{{- else }}
{{- $parts = append $parts (printf "%s: %s" $key (include "bellwether.cel" (list (printf "%s.%s" $path $key) $inner))) }}
{{- end }}
{{- end }}
{{- ternary "" $path $is_of_texts }}{ {{- join ", " $parts -}} }
{{- else if kindIs "slice" $value }}
{{- $objects := false }}
{{- range $value }}
{{- $objects = kindIs "map" . }}
{{- $parts = append $parts (include "bellwether.cel" (list $path .)) }}
{{- end }}
{{- if $objects -}}
[
{{- join "," $parts | replace (printf ",%s{" $path) (printf ",\n%s{" $path) | nindent 2 }}
]
{{- else -}}
[{{ join ", " $parts }}]
{{- end }}
{{- else }}
{{- toJson $value }}
{{- end }}
{{- end }}

{{- /* One variable of the environment, ours unless the values have one by its name: (list theirs name "value: ours"). */}}
{{- define "bellwether.variable" -}}
{{- with get (index . 0) (index . 1) -}}
{{ toYaml (list .) }}
{{- else -}}
- name: {{ index . 1 }}
  {{ index . 2 }}
{{- end }}
{{- end }}

{{- /* A setting as it will count, with `bellwether.env` above the other values: (list . "BELLWETHER_TICK_TIME" "2s"). It is
empty if only the cluster knows it. */}}
{{- define "bellwether.setting" -}}
{{- $name := index . 1 }}
{{- $setting := index . 2 }}
{{- range (index . 0).Values.bellwether.env }}
{{- if eq .name $name }}
{{- $setting = get . "value" }}
{{- end }}
{{- end }}
{{- $setting }}
{{- end }}

{{- /* The ports of ZooKeeper's servers, as a list in YAML. */}}
{{- define "bellwether.zookeeperPorts" -}}
{{- $servers := include "bellwether.setting" (list . "BELLWETHER_ZOOKEEPER" .Values.bellwether.zookeeper) }}
{{- $known := list }}
{{- if and $servers (not (contains "$(" $servers)) }}
{{- range splitList "," (regexReplaceAll "/.*$" $servers "") }}
{{- $port := regexFind ":[0-9]+$" (trim .) | trimPrefix ":" | default "2181" }}
{{- $known = append $known (int $port) }}
{{- end }}
{{- else if not .Values.networkPolicy.ports }}
{{- fail "networkPolicy.ports: say which, since only the cluster knows BELLWETHER_ZOOKEEPER" }}
{{- end }}
{{- with .Values.networkPolicy.ports }}
{{- $open := list }}
{{- range . }}
{{- $open = append $open (int .) }}
{{- end }}
{{- range $known }}
{{- if not (has . $open) }}
{{- fail (printf "networkPolicy.ports lacks %d, where bellwether.zookeeper is" .) }}
{{- end }}
{{- end }}
{{- $known = $open }}
{{- end }}
{{- $known | uniq | toYaml }}
{{- end }}

{{- /* What each pod may have of the values. */}}
{{- define "bellwether.scheduling" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "bellwether.podLabels" -}}
{{- range $key, $_ := .Values.podLabels }}
{{- if has $key (list "app.kubernetes.io/name" "app.kubernetes.io/instance" $.Values.podLabel) }}
{{- fail (printf "podLabels: Services select by %s, so it cannot be set" $key) }}
{{- end }}
{{- end }}
{{- with .Values.podLabels }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- /* The configuration file of `bellwether.rbac`. Empty for routes without one. */}}
{{- define "bellwether.config" -}}
{{- if eq .Values.route "label" -}}
[[hook]]
pod_label = {{ .Values.podLabel | quote }}
{{- else if eq .Values.route "endpointslice" -}}
[[hook]]
endpoint_slice = "{{ include "bellwether.group" . }}-leader"
{{- end }}
{{- end }}

{{- /* Labels of the members. A chart of one's own has the usual ones itself, so there it is a key that only Bellwether has. */}}
{{- define "bellwether.labels" -}}
{{- if .Values.example -}}
app.kubernetes.io/name: bellwether-example
app.kubernetes.io/instance: {{ .Release.Name }}
{{- else -}}
bellwether.io/group: {{ include "bellwether.group" . }}
{{- end }}
{{- end }}

{{- /* A length of time, as the configuration has it: (list "its key" "1m 30s") is 90000. */}}
{{- define "bellwether.milliseconds" -}}
{{- $units := dict "ms" 1 "msec" 1 "s" 1000 "sec" 1000 "secs" 1000 "m" 60000 "min" 60000 "mins" 60000 "h" 3600000 }}
{{- $key := index . 0 }}
{{- $written := index . 1 }}
{{- if not (regexMatch "^([0-9]+ *[a-z]+ *)+$" $written) }}
{{- fail (printf "%s = %q is no duration: write 500ms, 10s or 2m" $key $written) }}
{{- end }}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9]+ *[a-z]+" $written -1 }}
{{- $unit := regexFind "[a-z]+" . }}
{{- if not (hasKey $units $unit) }}
{{- fail (printf "%s = %q has no unit that is known here: write 500ms, 10s or 2m" $key $written) }}
{{- end }}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | int) (get $units $unit)) }}
{{- end }}
{{- $sum }}
{{- end }}
