{{/* Decides how a router's pod looks. */}}

{{- define "isthmus.router.podSpec" -}}
{{- $router := .Values.router -}}
serviceAccountName: {{ include "isthmus.router.serviceAccountName" . | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ include "isthmus.router.graceSeconds" . }}
{{- with include "isthmus.pullSecrets" . }}
{{ . }}
{{- end }}
securityContext:
  {{- include "isthmus.podSecurityContext" (dict "context" $router.podSecurityContext) | nindent 2 }}
{{- with $router.initContainers }}
initContainers:
  {{- include "isthmus.yaml" . | nindent 2 }}
{{- end }}
containers:
  - name: router
    image: {{ include "isthmus.image" (dict "root" $ "image" $router.image "path" "router.image") | quote }}
    imagePullPolicy: {{ ($router.image).pullPolicy | default "IfNotPresent" | quote }}
    args: ["router", "serve", "--config", "/etc/isthmus/isthmus.yaml"]
    env:
      {{- $env := include "isthmus.router.environment" . | fromYamlArray }}
      {{- include "isthmus.joined" (dict "key" "name" "lists" (list $env $router.extraEnv)) | nindent 6 }}
    ports:
      - name: http
        containerPort: {{ include "isthmus.router.port" . }}
        protocol: TCP
    # Liveness asks the process alone: with Redis or every backend gone the router still answers from what it
    # last knew, and a restart would only lose that.
    {{- with ($router.probes).startup }}
    startupProbe:
      {{- include "isthmus.httpProbe" (dict "probe" . "path" "/healthz" "port" "http") | nindent 6 }}
    {{- end }}
    {{- with ($router.probes).liveness }}
    livenessProbe:
      {{- include "isthmus.httpProbe" (dict "probe" . "path" "/healthz" "port" "http") | nindent 6 }}
    {{- end }}
    {{- with ($router.probes).readiness }}
    readinessProbe:
      {{- include "isthmus.httpProbe" (dict "probe" . "path" "/readyz" "port" "http") | nindent 6 }}
    {{- end }}
    {{- with $router.preStopSeconds }}
    lifecycle:
      preStop:
        # New connections stop only when every node has dropped the endpoint.
        exec:
          command: ["sleep", {{ int . | quote }}]
    {{- end }}
    {{- with $router.resources }}
    resources:
      {{- include "isthmus.yaml" . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "isthmus.securityContext" (dict "context" $router.securityContext) | nindent 6 }}
    volumeMounts:
      {{- $mounts := include "isthmus.router.volumeMounts" . | fromYamlArray }}
      {{- include "isthmus.joined" (dict "key" "mountPath" "lists" (list $mounts $router.extraVolumeMounts)) | nindent 6 }}
  {{- with $router.extraContainers }}
  {{- include "isthmus.yaml" . | nindent 2 }}
  {{- end }}
volumes:
  {{- $volumes := include "isthmus.router.volumes" . | fromYamlArray }}
  {{- include "isthmus.joined" (dict "key" "name" "lists" (list $volumes $router.extraVolumes)) | nindent 2 }}
{{- with include "isthmus.scheduling" $router }}
{{ . }}
{{- end }}
topologySpreadConstraints:
  {{- with $router.topologySpreadConstraints }}
  {{- include "isthmus.yaml" . | nindent 2 }}
  {{- else }}
  {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ $key | quote }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "isthmus.selectorLabels" (dict "root" $ "component" "router") | nindent 8 }}
    # Pods of the outgoing revision do not count: they would push the incoming ones together.
    matchLabelKeys: [pod-template-hash]
  {{- end }}
  {{- end }}
{{- end -}}

{{- define "isthmus.router.environment" -}}
- name: ISTHMUS_HOME
  value: /var/lib/isthmus
{{- with include "isthmus.router.keys" . }}
# Over the settings file; the value holds hashes, never keys.
- name: ISTHMUS__ROUTER__KEYS
  valueFrom:
    secretKeyRef:
      {{- . | nindent 6 }}
{{- end }}
{{- end -}}

{{- define "isthmus.router.volumeMounts" -}}
- name: config
  mountPath: /etc/isthmus
  readOnly: true
- name: home
  mountPath: /var/lib/isthmus
- name: tmp
  mountPath: /tmp
{{- range $folder, $_ := include "isthmus.router.secretVolumes" . | fromYaml }}
- name: secret-{{ $folder }}
  mountPath: {{ include "isthmus.router.secrets" $ }}/{{ $folder }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "isthmus.router.volumes" -}}
- name: config
  configMap:
    name: {{ include "isthmus.router.name" . | quote }}
- name: home
  {{- with (.Values.router).homeVolume }}
  {{- include "isthmus.yaml" . | nindent 2 }}
  {{- else }}
  emptyDir: {}
  {{- end }}
- name: tmp
  emptyDir: {}
{{- range $folder, $item := include "isthmus.router.secretVolumes" . | fromYaml }}
- name: secret-{{ $folder }}
  secret:
    secretName: {{ $item.secret | quote }}
    items:
      - key: {{ $item.key | quote }}
        path: {{ $item.key | quote }}
{{- end }}
{{- end -}}
