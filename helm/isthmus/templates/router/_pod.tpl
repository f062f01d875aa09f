{{/* Decides how a router's pod looks. */}}

{{- define "isthmus.router.podSpec" -}}
{{- $router := .Values.router -}}
{{- $secrets := include "isthmus.router.secretVolumes" . | fromYaml -}}
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
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: router
    image: {{ include "isthmus.image" (dict "root" $ "image" $router.image "path" "router.image") | quote }}
    imagePullPolicy: {{ ($router.image).pullPolicy | default "IfNotPresent" | quote }}
    args: ["router", "serve", "--config", "/etc/isthmus/isthmus.yaml"]
    env:
      - name: ISTHMUS_HOME
        value: /var/lib/isthmus
      {{- with include "isthmus.router.keys" . | fromYaml }}
      # Over the settings file; the value holds hashes, never keys.
      - name: ISTHMUS__ROUTER__KEYS
        valueFrom:
          secretKeyRef:
            {{- toYaml . | nindent 12 }}
      {{- end }}
      {{- with $router.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
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
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "isthmus.securityContext" (dict "context" $router.securityContext) | nindent 6 }}
    volumeMounts:
      - name: config
        mountPath: /etc/isthmus
        readOnly: true
      - name: home
        mountPath: /var/lib/isthmus
      - name: tmp
        mountPath: /tmp
      {{- range $folder, $_ := $secrets }}
      - name: secret-{{ $folder }}
        mountPath: {{ include "isthmus.router.secrets" $ }}/{{ $folder }}
        readOnly: true
      {{- end }}
      {{- with $router.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  {{- with $router.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
  - name: config
    configMap:
      name: {{ include "isthmus.router.name" . | quote }}
  - name: home
    {{- with $router.homeVolume }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    emptyDir: {}
    {{- end }}
  - name: tmp
    emptyDir: {}
  {{- range $folder, $item := $secrets }}
  - name: secret-{{ $folder }}
    secret:
      secretName: {{ $item.secret | quote }}
      items:
        - key: {{ $item.key | quote }}
          path: {{ $item.key | quote }}
  {{- end }}
  {{- with $router.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with include "isthmus.scheduling" $router }}
{{ . }}
{{- end }}
topologySpreadConstraints:
  {{- with $router.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
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
