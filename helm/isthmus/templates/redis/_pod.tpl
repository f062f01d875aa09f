{{/* Decides how the pod of our own Redis looks. */}}

{{- define "isthmus.redis.podSpec" -}}
{{- $redis := .Values.redis -}}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: 60
{{- with include "isthmus.pullSecrets" . }}
{{ . }}
{{- end }}
securityContext:
  {{- include "isthmus.podSecurityContext" (dict "context" $redis.podSecurityContext) | nindent 2 }}
{{- with $redis.initContainers }}
initContainers:
  {{- include "isthmus.yaml" . | nindent 2 }}
{{- end }}
containers:
  - name: redis
    image: {{ include "isthmus.image" (dict "root" $ "image" $redis.image "path" "redis.image") | quote }}
    imagePullPolicy: {{ ($redis.image).pullPolicy | default "IfNotPresent" | quote }}
    command: ["/bin/sh", "-euc"]
    args:
      - |
        {{- include "isthmus.redis.command" . | nindent 8 }}
    env:
      {{- $env := include "isthmus.redis.passwords" . | fromYamlArray }}
      {{- include "isthmus.joined" (dict "key" "name" "lists" (list $env $redis.extraEnv)) | nindent 6 }}
    ports:
      - name: redis
        containerPort: 6379
        protocol: TCP
    # A large append-only file is replayed before the server answers; the start-up budget covers that.
    startupProbe:
      tcpSocket:
        port: redis
      periodSeconds: 5
      failureThreshold: 60
    livenessProbe:
      tcpSocket:
        port: redis
      periodSeconds: 10
      timeoutSeconds: 2
      failureThreshold: 6
    readinessProbe:
      exec:
        command:
          - /bin/sh
          - -ec
          - REDISCLI_AUTH="$ROUTER_PASSWORD" redis-cli {{ if ($redis.tls).enabled }}--tls --cacert /etc/redis-tls/ca.crt {{ end }}--user {{ ($redis.auth).routerUsername | default "router" }} ping | grep -qx PONG
      periodSeconds: 5
      timeoutSeconds: 3
      failureThreshold: 3
    {{- with $redis.resources }}
    resources:
      {{- include "isthmus.yaml" . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "isthmus.securityContext" (dict "context" $redis.securityContext) | nindent 6 }}
    volumeMounts:
      {{- $mounts := include "isthmus.redis.volumeMounts" . | fromYamlArray }}
      {{- include "isthmus.joined" (dict "key" "mountPath" "lists" (list $mounts $redis.extraVolumeMounts)) | nindent 6 }}
  {{- with $redis.extraContainers }}
  {{- include "isthmus.yaml" . | nindent 2 }}
  {{- end }}
volumes:
  {{- $volumes := include "isthmus.redis.volumes" . | fromYamlArray }}
  {{- include "isthmus.joined" (dict "key" "name" "lists" (list $volumes $redis.extraVolumes)) | nindent 2 }}
{{- with include "isthmus.scheduling" $redis }}
{{ . }}
{{- end }}
{{- end -}}

{{- define "isthmus.redis.volumeMounts" -}}
- name: data
  mountPath: /data
- name: config
  mountPath: /etc/redis
  readOnly: true
{{- if ((.Values.redis).tls).enabled }}
- name: tls
  mountPath: /etc/redis-tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "isthmus.redis.volumes" -}}
- name: config
  configMap:
    name: {{ include "isthmus.redis.name" . | quote }}
{{- if ((.Values.redis).tls).enabled }}
- name: tls
  secret:
    secretName: {{ .Values.redis.tls.existingSecret | quote }}
{{- end }}
{{- if not ((.Values.redis).storage).size }}
- name: data
  emptyDir: {}
{{- end }}
{{- end -}}
