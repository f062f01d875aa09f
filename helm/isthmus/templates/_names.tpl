{{/* Decides how every object is called and labelled. */}}

{{- define "isthmus.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 36 | trimSuffix "-" -}}
{{- end -}}

{{/*
At most 36 characters, so that the longest derived name (`-cloud` for the RayService, at most 47) always fits. A name
that must be cut gets six characters of its hash: two long releases never share objects.
*/}}
{{- define "isthmus.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
  {{- $chart := include "isthmus.name" . -}}
  {{- $name = ternary .Release.Name (printf "%s-%s" .Release.Name $chart) (contains $chart .Release.Name) -}}
{{- end -}}
{{- $name = $name | replace "." "-" -}}
{{- if gt (len $name) 36 -}}
  {{- printf "%s-%s" ($name | trunc 29 | trimSuffix "-") ($name | sha256sum | trunc 6) -}}
{{- else -}}
  {{- $name -}}
{{- end -}}
{{- end -}}

{{- define "isthmus.router.name" -}}{{ include "isthmus.fullname" . }}-router{{- end -}}
{{- define "isthmus.cloud.name" -}}{{ include "isthmus.fullname" . }}-cloud{{- end -}}
{{- define "isthmus.redis.name" -}}{{ include "isthmus.fullname" . }}-redis{{- end -}}

{{- define "isthmus.join.name" -}}{{ include "isthmus.fullname" . }}-join{{- end -}}
{{- define "isthmus.tests.name" -}}{{ include "isthmus.fullname" . }}-ask{{- end -}}

{{/* KubeRay names the serve service after the RayService. */}}
{{- define "isthmus.cloud.serveService" -}}{{ include "isthmus.cloud.name" . }}-serve-svc{{- end -}}

{{/*
Labels that select pods. They are immutable in a Deployment and a StatefulSet, so nothing that changes with a version
may ever be added here. Call with (dict "root" $ "component" "router").
*/}}
{{- define "isthmus.selectorLabels" -}}
app.kubernetes.io/name: {{ include "isthmus.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component | quote }}
{{- end -}}

{{/* Labels of objects. Pod templates carry only selector labels: a new chart version alone must not restart pods. */}}
{{- define "isthmus.labels" -}}
{{- $own := include "isthmus.selectorLabels" . | fromYaml -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63) -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "isthmus" -}}
{{- with .root.Chart.AppVersion -}}{{- $_ := set $own "app.kubernetes.io/version" . -}}{{- end -}}
{{- include "isthmus.yaml" (mergeOverwrite (deepCopy (.root.Values.commonLabels | default dict)) (.labels | default dict) $own) -}}
{{- end -}}

{{/*
`metadata` of an object: name, namespace, labels, annotations. Call with (dict "root" $ "component" c "name" n), and
`labels` or `annotations` where it has some of its own.
*/}}
{{- define "isthmus.metadata" -}}
name: {{ .name | quote }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "isthmus.labels" . | nindent 2 }}
{{- with merge (deepCopy (.annotations | default dict)) (.root.Values.commonAnnotations | default dict) }}
annotations:
  {{- include "isthmus.yaml" . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A question to the first model that the chart knows by name, for the notes and for `helm test`. */}}
{{- define "isthmus.question" -}}
{{- $model := "smollm2-135m-instruct" -}}
{{- if (.Values.tests).model -}}
  {{- $model = .Values.tests.model -}}
{{- else if include "isthmus.cloud.onRay" . -}}
  {{- range (include "isthmus.cloud.settings" . | fromYaml).models | reverse }}{{ $model = .model_id }}{{ end -}}
{{- else -}}
  {{- range ((.Values.cloud).external).models | default list | reverse }}{{ with . }}{{ $model = .id }}{{ end }}{{ end -}}
{{- end -}}
{{- dict "model" $model "messages" (list (dict "role" "user" "content" "Which city is the capital of France?")) | toJson -}}
{{- end -}}

{{/* "true" for a value that was set, 0 included. */}}
{{- define "isthmus.given" -}}
{{- if not (or (kindIs "invalid" .) (eq (toString .) "")) -}}true{{- end -}}
{{- end -}}

{{/* A whole number that was set, 0 included, or its default. Call with (dict "value" v "default" d). */}}
{{- define "isthmus.count" -}}
{{- if include "isthmus.given" .value -}}{{- int .value -}}{{- else -}}{{- int .default -}}{{- end -}}
{{- end -}}

{{/* A value of the operator as YAML, without what is null at any depth: null removes, it is never handed on. */}}
{{- define "isthmus.yaml" -}}
{{- $copy := deepCopy (dict "value" .) -}}
{{- include "isthmus.tidied" $copy -}}
{{- toYaml $copy.value -}}
{{- end -}}

{{/* Removes, in place, the keys and the items that are null. */}}
{{- define "isthmus.tidied" -}}
{{- $mapping := . -}}
{{- range $key, $value := $mapping -}}
  {{- if kindIs "invalid" $value -}}
    {{- $_ := unset $mapping $key -}}
  {{- else if kindIs "map" $value -}}
    {{- include "isthmus.tidied" $value -}}
  {{- else if kindIs "slice" $value -}}
    {{- $items := list -}}
    {{- range $value -}}
      {{- $item := dict "value" . -}}
      {{- include "isthmus.tidied" $item -}}
      {{- if hasKey $item "value" -}}{{- $items = append $items $item.value -}}{{- end -}}
    {{- end -}}
    {{- $_ := set $mapping $key $items -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Lays `over` on `base`, in place: null removes a key of the chart's too, and lists are replaced. */}}
{{- define "isthmus.laidOver" -}}
{{- $base := .base -}}
{{- range $key, $value := .over -}}
  {{- if kindIs "invalid" $value -}}
    {{- $_ := unset $base $key -}}
  {{- else if and (kindIs "map" $value) (kindIs "map" (get $base $key)) -}}
    {{- include "isthmus.laidOver" (dict "base" (get $base $key) "over" $value) -}}
  {{- else -}}
    {{- $_ := set $base $key $value -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/*
Lists as one, in which a later item takes the place of an earlier one that says the same under `key`: the API server
refuses two. Call with (dict "key" "name" "lists" (list …)).
*/}}
{{- define "isthmus.joined" -}}
{{- $key := .key -}}
{{- $known := dict -}}
{{- $items := list -}}
{{- range .lists | reverse -}}
  {{- range . | default list | reverse -}}
    {{- if and . (not (hasKey $known (get . $key))) -}}
      {{- $_ := set $known (get . $key) true -}}
      {{- $items = prepend $items . -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- include "isthmus.yaml" $items -}}
{{- end -}}

{{/* A mapping without the keys that are null, at any depth, as YAML: null removes, it never overwrites a default. */}}
{{- define "isthmus.pruned" -}}
{{- $kept := dict -}}
{{- range $key, $value := . -}}
  {{- if kindIs "map" $value -}}
    {{- $_ := set $kept $key (include "isthmus.pruned" $value | fromYaml) -}}
  {{- else if not (kindIs "invalid" $value) -}}
    {{- $_ := set $kept $key $value -}}
  {{- end -}}
{{- end -}}
{{- toYaml $kept -}}
{{- end -}}
