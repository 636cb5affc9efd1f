{{- /* The sidecar's container. A chart that depends on this one calls it with a context whose Values are this
chart's: (dict "Values" .Values.bellwether "Release" .Release "Capabilities" .Capabilities). */}}
{{- define "bellwether.sidecar" -}}
{{- if and (eq .Values.sidecar "native") .Capabilities (semverCompare "<1.29.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail "sidecar: native needs Kubernetes 1.29 or newer, else it would never let the application start; take classic" }}
{{- end -}}
- name: bellwether
  image: {{ .Values.bellwether.image }}
  {{- if eq .Values.sidecar "native" }}
  # An init container that goes on running is a native sidecar: it starts before the application and ends after it.
  restartPolicy: Always
  {{- end }}
  args: [run]
  env:
    - name: POD_NAME # the member's id
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    - name: POD_IP
      valueFrom: {fieldRef: {fieldPath: status.podIP}}
    {{- if not .Values.bellwether.election }}
    - name: POD_NAMESPACE
      valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
    {{- end }}
    - name: BELLWETHER_ADDRESS # where this replica is found while it leads
      value: $(POD_IP):{{ .Values.app.port }}
    - name: BELLWETHER_ZOOKEEPER
      value: {{ .Values.bellwether.zookeeper | quote }}
    - name: BELLWETHER_ELECTION
      value: {{ .Values.bellwether.election | default (printf "/$(POD_NAMESPACE)/%s" .Release.Name) | quote }}
    - name: BELLWETHER_SESSION_TIMEOUT
      value: {{ .Values.bellwether.sessionTimeout | quote }}
    - name: BELLWETHER_TICK_TIME # the servers' tickTime: too small a value makes the lease unsafe
      value: {{ .Values.bellwether.tickTime | quote }}
    # The kubelet asks at the pod's address, where loopback does not answer. Only what is read-only is served there;
    # the rest of the API, orders among it, stays on 127.0.0.1:4040.
    - name: BELLWETHER_PROBE_LISTEN
      value: 0.0.0.0:4041
    {{- if eq .Values.route "label" }}
    - name: BELLWETHER_CONFIG # the hook that sets this pod's label
      value: /etc/bellwether/bellwether.toml
    {{- end }}
    {{- with .Values.bellwether.env }}
    {{- toYaml . | nindent 4 }}
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
  # Counts for the whole pod: ready means that it stands in the line and knows a leader, never that it leads. Leave it
  # out if the application shall get traffic while ZooKeeper is away.
  readinessProbe:
    httpGet: {path: /readyz, port: probes}
    periodSeconds: 5
  {{- end }}
  lifecycle:
    # As soon as the pod is to end, and before Bellwether is told so itself: out of the line, and leadership handed
    # over if it led. Not httpGet: that comes from outside, and orders are taken on loopback only.
    preStop:
      exec: {command: [/bellwether, drain]}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
  # No limit on the CPU: being throttled looks like a long pause, and a long pause costs leadership.
  resources:
    {{- toYaml .Values.bellwether.resources | nindent 4 }}
  {{- if or .Values.bellwether.volumeMounts (eq .Values.route "label") }}
  volumeMounts:
    {{- if eq .Values.route "label" }}
    - {name: bellwether-config, mountPath: /etc/bellwether, readOnly: true}
    # This container's alone: the application has no token.
    - {name: bellwether-account, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
    {{- end }}
    {{- with .Values.bellwether.volumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
{{- end }}

{{- /* With `route: label`, the volumes of its pod. */}}
{{- define "bellwether.volumes" -}}
{{- if eq .Values.route "label" -}}
- name: bellwether-config
  configMap: {name: {{ .Release.Name }}-bellwether}
- name: bellwether-account
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}
{{- end }}

{{- define "bellwether.labels" -}}
app.kubernetes.io/name: bellwether-example
app.kubernetes.io/instance: {{ .Release.Name }}
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
