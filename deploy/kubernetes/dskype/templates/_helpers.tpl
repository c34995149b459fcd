{{/* The image of all pods. */}}
{{- define "dskype.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* What selects the pods of a part. Call it with (list . "driver"). */}}
{{- define "dskype.selector" -}}
{{- $root := first . -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{/* The labels of an object of a part. Call it with (list . "driver"). */}}
{{- define "dskype.labels" -}}
{{- $root := first . -}}
{{ include "dskype.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
{{- end }}

{{/* What all pods have: no rights of root, and the values about hosts and images. */}}
{{- define "dskype.pod" -}}
securityContext: {runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, seccompProfile: {type: RuntimeDefault}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{/* What all containers have; the file system is read-only but for the volume "work". */}}
{{- define "dskype.container" -}}
image: {{ include "dskype.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{/* Where a container writes. */}}
{{- define "dskype.mounts" -}}
- {name: work, mountPath: /home/dskype/.dskype, subPath: home}
- {name: work, mountPath: /tmp, subPath: tmp}
- {name: work, mountPath: /var/spark, subPath: spark}
{{- end }}

{{/* The volume "work" with what the image has in its home: jars, class archives and kernels. The folders belong to the user of the pod, as they have to. */}}
{{- define "dskype.work" -}}
initContainers:
  - name: home
    {{- include "dskype.container" . | nindent 4 }}
    command: [sh, -c, "test -d /work/home || { mkdir -p -m 700 /work/tmp /work/spark && cp -a /home/dskype/.dskype /work/copy && mv /work/copy /work/home; }"]
    volumeMounts:
      - {name: work, mountPath: /work}
volumes:
  - name: work
    emptyDir: {}
{{- end }}

{{/* The options of every command that reaches the brokers, as items of a list. */}}
{{- define "dskype.brokers" -}}
- {{ printf "--bootstrap-servers=%s" (required "kafka.bootstrapServers is needed: --set kafka.bootstrapServers=HOST:PORT" .Values.kafka.bootstrapServers) | quote }}
{{- range $name, $value := .Values.kafka.settings }}
- {{ printf "--kafka=%s=%s" $name (kindIs "string" $value | ternary $value (toJson $value)) | quote }}
{{- end }}
{{- end }}

{{/* The secret of the Kafka clients, as environment variables. */}}
{{- define "dskype.secret" -}}
{{- with .Values.kafka.secret }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end }}
