"""Configurations put to the real server, good and bad.

`record.py` asks it, the tests read its answers. A variant is the text of one `config.pbtxt`; its
name is the model's, and appears in the answers.
"""

from __future__ import annotations

IO = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
PY = 'backend: "python"\n'
BASE = PY + IO
B8 = PY + "max_batch_size: 8\n" + IO
B0 = BASE

V: dict[str, str] = {}

# instance groups
V["plain"] = BASE
V["batch8"] = B8
V["named"] = 'name: "named"\n' + BASE
V["no_backend"] = IO
V["no_config"] = ""  # no file at all
V["default_file"] = BASE + 'default_model_filename: "model.py"\n'
V["platform_set"] = 'platform: "python_thing"\n' + BASE
V["runtime_set"] = 'runtime: ""\n' + BASE
V["ig_count2"] = BASE + "instance_group [ { count: 2 } ]"
V["ig_count1"] = BASE + "instance_group [ { count: 1 } ]"
V["ig_count0"] = BASE + "instance_group [ { count: 0 } ]"
V["ig_empty_group"] = BASE + "instance_group { }"
V["ig_neg"] = BASE + "instance_group [ { count: -1 } ]"
V["ig_cpu"] = BASE + "instance_group [ { kind: KIND_CPU } ]"
V["ig_cpu_gpus"] = BASE + "instance_group [ { kind: KIND_CPU gpus: [ 0 ] } ]"
V["ig_auto"] = BASE + "instance_group [ { kind: KIND_AUTO } ]"
V["ig_auto_gpus"] = BASE + "instance_group [ { kind: KIND_AUTO gpus: [ 0 ] } ]"
V["ig_gpu"] = BASE + "instance_group [ { kind: KIND_GPU } ]"
V["ig_gpu_gpus"] = BASE + "instance_group [ { kind: KIND_GPU gpus: [ 0, 1 ] count: 2 } ]"
V["ig_model"] = BASE + "instance_group [ { kind: KIND_MODEL count: 2 } ]"
V["ig_model_gpus"] = BASE + "instance_group [ { kind: KIND_MODEL gpus: [ 0 ] } ]"
V["ig_model_named"] = BASE + 'instance_group [ { name: "mine" kind: KIND_MODEL } ]'
V["ig_multi"] = (
    BASE + "instance_group [ { count: 2 }, { kind: KIND_CPU count: 1 }, { kind: KIND_MODEL } ]"
)
V["ig_mixed_names"] = BASE + 'instance_group [ { name: "a" count: 1 }, { count: 2 } ]'
V["ig_dup_names"] = BASE + 'instance_group [ { name: "a" }, { name: "a" } ]'
V["ig_odd_name"] = BASE + 'instance_group [ { name: "a b/c" } ]'
V["ig_profile"] = BASE + 'instance_group [ { count: 1 profile: [ "p1", "p2" ] } ]'
V["ig_passive"] = BASE + "instance_group [ { count: 1 }, { count: 1 passive: true } ]"
V["ig_host_policy"] = BASE + 'instance_group [ { count: 1 host_policy: "numa0" } ]'
V["ig_rate"] = BASE + (
    'instance_group [ { count: 2 rate_limiter { resources [ { name: "R1" count: 4 }, '
    '{ name: "R2" global: true count: 2 } ] priority: 2 } } ]'
)
V["ig_rate_empty"] = BASE + "instance_group [ { count: 1 rate_limiter { } } ]"
V["ig_secondary"] = BASE + (
    "instance_group [ { count: 1 secondary_devices [ { kind: KIND_NVDLA device_id: 3 } ] } ]"
)

# inputs and outputs
for _t in [
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "STRING",
    "BF16",
]:
    V["type_" + _t.lower()] = PY + (
        f'input [ {{ name: "I" data_type: TYPE_{_t} dims: [ 2, -1 ] }} ]\n'
        f'output [ {{ name: "O" data_type: TYPE_{_t} dims: [ 2, -1 ] }} ]\n'
    )
V["io_optional"] = PY + (
    'input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] optional: true },'
    ' { name: "B" data_type: TYPE_INT64 dims: [ 9223372036854775807 ] } ]\n'
    'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] label_filename: "labels.txt" } ]\n'
)
V["io_format"] = PY + (
    'input [ { name: "A" data_type: TYPE_FP32 format: FORMAT_NHWC dims: [ 2, 3, 4 ] },'
    ' { name: "B" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 2, 3, 4 ] } ]\n'
    'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
)
V["io_format_rank"] = PY + (
    'input [ { name: "A" data_type: TYPE_FP32 format: FORMAT_NHWC dims: [ 2 ] } ]\n'
    'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
)
V["io_reshape"] = (
    PY
    + "max_batch_size: 4\n"
    + (
        'input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } } ]\n'
        'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } } ]\n'
    )
)
V["io_reshape_nobatch"] = PY + (
    'input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } } ]\n'
    'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } } ]\n'
)
V["io_reshape_bad"] = (
    PY
    + "max_batch_size: 4\n"
    + (
        'input [ { name: "A" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: [ 5 ] } } ]\n'
        'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
    )
)
V["io_reshape_out_bad"] = (
    PY
    + "max_batch_size: 4\n"
    + (
        'input [ { name: "A" data_type: TYPE_FP32 dims: [ 6 ] } ]\n'
        'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: [ 5 ] } } ]\n'
    )
)
V["io_reshape_var"] = (
    PY
    + "max_batch_size: 4\n"
    + (
        'input [ { name: "A" data_type: TYPE_FP32 dims: [ 2, -1, 3 ] reshape { shape: [ 3, 2, -1 ] } } ]\n'
        'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
    )
)
V["io_reshape_var_count"] = (
    PY
    + "max_batch_size: 4\n"
    + (
        'input [ { name: "A" data_type: TYPE_FP32 dims: [ 2, -1 ] reshape { shape: [ 2 ] } } ]\n'
        'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
    )
)
V["io_reshape_zero"] = (
    PY
    + "max_batch_size: 4\n"
    + (
        'input [ { name: "A" data_type: TYPE_FP32 dims: [ 2 ] reshape { shape: [ 0 ] } } ]\n'
        'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
    )
)
V["io_ragged"] = (
    PY
    + "max_batch_size: 4\n"
    + (
        'input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]\n'
        'output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
        'batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: [ "N" ] data_type: TYPE_FP32'
        ' source_input: [ "A" ] } ]\n'
        'batch_output [ { target_name: [ "Y" ] kind: BATCH_SCATTER_WITH_INPUT_SHAPE'
        ' source_input: [ "A" ] } ]\n'
    )
)
V["io_ragged_nobatch"] = PY + (
    'input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]\n'
    'output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
)
for _k in (
    "BATCH_ACCUMULATED_ELEMENT_COUNT",
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE",
    "BATCH_ITEM_SHAPE",
    "BATCH_ITEM_SHAPE_FLATTEN",
):
    V["bi_" + _k.lower()] = (
        PY
        + "max_batch_size: 4\n"
        + IO
        + (
            f'batch_input [ {{ kind: {_k} target_name: [ "N" ] data_type: TYPE_INT32'
            ' source_input: [ "X" ] } ]\n'
        )
    )
V["bi_bad_source"] = B8 + (
    'batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: [ "N" ] data_type: TYPE_FP32'
    ' source_input: [ "Q" ] } ]\n'
)
V["bi_two_targets"] = B8 + (
    'batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: [ "N", "M" ] data_type: TYPE_FP32'
    ' source_input: [ "X" ] } ]\n'
)
V["bi_no_target"] = B8 + (
    'batch_input [ { kind: BATCH_ELEMENT_COUNT data_type: TYPE_FP32 source_input: [ "X" ] } ]\n'
)
V["bi_two_sources"] = B8 + (
    'batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: [ "N" ] data_type: TYPE_FP32'
    ' source_input: [ "X", "X" ] } ]\n'
)
V["bi_dtype"] = B8 + (
    'batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: [ "N" ] data_type: TYPE_INT64'
    ' source_input: [ "X" ] } ]\n'
)
V["bo_bad_source"] = B8 + (
    'batch_output [ { target_name: [ "Y" ] kind: BATCH_SCATTER_WITH_INPUT_SHAPE'
    ' source_input: [ "Q" ] } ]\n'
)
V["bo_bad_target"] = B8 + (
    'batch_output [ { target_name: [ "Z" ] kind: BATCH_SCATTER_WITH_INPUT_SHAPE'
    ' source_input: [ "X" ] } ]\n'
)
V["bo_dup_target"] = B8 + (
    'batch_output [ { target_name: [ "Y" ] kind: BATCH_SCATTER_WITH_INPUT_SHAPE'
    ' source_input: [ "X" ] }, { target_name: [ "Y" ] source_input: [ "X" ] } ]\n'
)
V["bo_sources"] = B8 + (
    'batch_output [ { target_name: [ "Y" ] kind: BATCH_SCATTER_WITH_INPUT_SHAPE'
    ' source_input: [ "X", "X" ] } ]\n'
)
V["io_shape_tensor"] = (
    PY
    + "max_batch_size: 4\n"
    + (
        'input [ { name: "A" data_type: TYPE_INT32 dims: [ 1 ] is_shape_tensor: true } ]\n'
        'output [ { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] is_shape_tensor: true } ]\n'
    )
)
V["io_nonlinear"] = PY + (
    'input [ { name: "A" data_type: TYPE_INT32 dims: [ 1 ] is_non_linear_format_io: true } ]\n'
    'output [ { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] is_non_linear_format_io: true } ]\n'
)
V["io_in_only"] = PY + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
V["io_out_only"] = PY + 'output [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
V["io_none"] = PY
V["io_escapes"] = PY + (
    'input [ { name: "a\\"b\\\\c/d\\n\\té<>&\'" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
    'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
)
V["io_bad_no_dtype"] = (
    PY
    + 'input [ { name: "X" dims: [ 1 ] } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]'
)
V["io_bad_out_dtype"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "Y" dims: [ 1 ] } ]'
)
V["io_bad_no_dims"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]'
)
V["io_bad_out_no_dims"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "Y" data_type: TYPE_FP32 } ]'
)
V["io_bad_no_dims_b"] = (
    PY
    + 'max_batch_size: 4\ninput [ { name: "X" data_type: TYPE_FP32 } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]'
)
V["io_bad_zero_dim"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 0 ] } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]'
)
V["io_bad_neg_dim"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ -2 ] } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]'
)
V["io_bad_out_zero"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ 0 ] } ]'
)
V["io_bad_no_name"] = (
    PY
    + 'input [ { data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]'
)
V["io_bad_out_no_name"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { data_type: TYPE_FP32 dims: [ 1 ] } ]'
)
V["io_dup_in"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]'
)
V["io_dup_out"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]'
)
V["io_same_in_out"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]'
)

# batch size, version policy
V["mbs_neg"] = PY + "max_batch_size: -1\n" + IO
V["mbs_1"] = PY + "max_batch_size: 1\n" + IO
V["vp_latest2"] = BASE + "version_policy { latest { num_versions: 2 } }"
V["vp_latest0"] = BASE + "version_policy { latest { } }"
V["vp_all"] = BASE + "version_policy { all { } }"
V["vp_empty"] = BASE + "version_policy { }"
V["vp_specific"] = BASE + "version_policy { specific { versions: [ 1, 3 ] } }"
V["vp_specific_none"] = BASE + "version_policy { specific { versions: [ 7 ] } }"
V["vp_specific_empty"] = BASE + "version_policy { specific { } }"

# dynamic batching
V["db_empty"] = B8 + "dynamic_batching { }"
V["db_pref"] = (
    B8
    + "dynamic_batching { preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 100 preserve_ordering: true }"
)
V["db_delay"] = B8 + "dynamic_batching { max_queue_delay_microseconds: 500 }"
V["db_big_delay"] = B8 + "dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 }"
V["db_prio"] = B8 + (
    "dynamic_batching { priority_levels: 3 default_priority_level: 2 "
    "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 7 "
    "allow_timeout_override: true max_queue_size: 5 } "
    "priority_queue_policy { key: 1 value { max_queue_size: 9 } } "
    "priority_queue_policy { key: 3 value { timeout_action: REJECT default_timeout_microseconds: 11 } } }"
)
V["db_queue"] = B8 + "dynamic_batching { default_queue_policy { max_queue_size: 3 } }"
V["db_queue_empty"] = B8 + "dynamic_batching { default_queue_policy { } }"
V["db_mbs0"] = B0 + "dynamic_batching { }"
V["db_mbs0_pref"] = B0 + "dynamic_batching { preferred_batch_size: [ 4 ] }"
V["db_mbs1"] = PY + "max_batch_size: 1\n" + IO + "dynamic_batching { }"
V["db_pref_big"] = B8 + "dynamic_batching { preferred_batch_size: [ 4, 16 ] }"
V["db_pref_zero"] = B8 + "dynamic_batching { preferred_batch_size: [ 0 ] }"
V["db_pref_neg"] = B8 + "dynamic_batching { preferred_batch_size: [ -4 ] }"
V["db_pref_dup"] = B8 + "dynamic_batching { preferred_batch_size: [ 4, 4, 2 ] }"
V["db_prio_nodefault"] = B8 + "dynamic_batching { priority_levels: 3 }"
V["db_prio_default_big"] = B8 + "dynamic_batching { priority_levels: 3 default_priority_level: 4 }"
V["db_prio_nolevels"] = B8 + "dynamic_batching { default_priority_level: 1 }"
V["db_prio_policy_big"] = (
    B8
    + "dynamic_batching { priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 5 value { max_queue_size: 9 } } }"
)
V["db_prio_policy_zero"] = (
    B8
    + "dynamic_batching { priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 0 value { max_queue_size: 9 } } }"
)
V["db_prio_policy_nolevels"] = (
    B8 + "dynamic_batching { priority_queue_policy { key: 1 value { max_queue_size: 9 } } }"
)
V["db_order_prio"] = (
    B8 + "dynamic_batching { preserve_ordering: true priority_levels: 2 default_priority_level: 1 }"
)

# sequences
V["sb_empty"] = B8 + "sequence_batching { }"
V["sb_mbs0"] = B0 + "sequence_batching { }"
V["sb_idle"] = B8 + "sequence_batching { max_sequence_idle_microseconds: 5000000 }"
V["sb_direct"] = (
    B8
    + "sequence_batching { direct { max_queue_delay_microseconds: 5 minimum_slot_utilization: 0.7 } }"
)
V["sb_direct_empty"] = B8 + "sequence_batching { direct { } }"
V["sb_direct_util"] = B8 + "sequence_batching { direct { minimum_slot_utilization: 1.5 } }"
V["sb_oldest"] = (
    B8
    + "sequence_batching { oldest { max_candidate_sequences: 4 preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 10 preserve_ordering: true } }"
)
V["sb_oldest_empty"] = B8 + "sequence_batching { oldest { } }"
V["sb_oldest_cand"] = B8 + "sequence_batching { oldest { max_candidate_sequences: 4 } }"
V["sb_oldest_mbs0"] = B0 + "sequence_batching { oldest { max_candidate_sequences: 4 } }"
V["sb_oldest_small"] = (
    B8 + "sequence_batching { oldest { max_candidate_sequences: 4 preferred_batch_size: [ 8 ] } }"
)
V["sb_oldest_pref_big"] = (
    B8 + "sequence_batching { oldest { max_candidate_sequences: 40 preferred_batch_size: [ 16 ] } }"
)
V["sb_oldest_pref_zero"] = (
    B8 + "sequence_batching { oldest { max_candidate_sequences: 40 preferred_batch_size: [ 0 ] } }"
)
_CTRL = (
    'control_input [ { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },'
    ' { name: "END" control [ { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } ] },'
    ' { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] },'
    ' { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] '
)
V["sb_controls"] = B8 + "sequence_batching { " + _CTRL + "}"
V["sb_corrid_string"] = (
    B8
    + 'sequence_batching { control_input [ { name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } ] } ] }'
)
V["sb_fp32_odd"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0.1, 1e10 ] } ] } ] }'
)
V["sb_fp32_odd2"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ -1.5e-8, 16777217 ] } ] } ] }'
)
V["sb_two_start"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] }, { name: "T" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] } ] }'
)
V["sb_two_end"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } ] }, { name: "T" control [ { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } ] } ] }'
)
V["sb_two_corrid"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }, { name: "T" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] }'
)
V["sb_two_types"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] int32_false_true: [ 0, 1 ] } ] } ] }'
)
V["sb_no_values"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START } ] } ] }'
)
V["sb_one_value"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 1 ] } ] } ] }'
)
V["sb_bool_one"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START bool_false_true: [ true ] } ] } ] }'
)
V["sb_fp32_one"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 1 ] } ] } ] }'
)
V["sb_ctrl_no_name"] = (
    B8
    + "sequence_batching { control_input [ { control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ] }"
)
V["sb_ctrl_empty"] = B8 + 'sequence_batching { control_input [ { name: "S" } ] }'
V["sb_dup_tensor"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] }, { name: "S" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] } ] }'
)
V["sb_two_in_one"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }, { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] } ] }'
)
V["sb_corrid_no_type"] = (
    B8
    + 'sequence_batching { control_input [ { name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID } ] } ] }'
)
V["sb_corrid_values"] = (
    B8
    + 'sequence_batching { control_input [ { name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 int32_false_true: [ 0, 1 ] } ] } ] }'
)
V["sb_corrid_fp32"] = (
    B8
    + 'sequence_batching { control_input [ { name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } ] } ] }'
)
V["sb_start_dtype"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START data_type: TYPE_FP32 int32_false_true: [ 0, 1 ] } ] } ] }'
)
V["sb_ctrl_is_input"] = (
    B8
    + 'sequence_batching { control_input [ { name: "X" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ] }'
)
_STATE = (
    'state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ -1, 2 ]'
    ' initial_state [ { data_type: TYPE_INT32 dims: [ 1, 2 ] zero_data: true name: "init" } ] },'
    ' { input_name: "TI" output_name: "TO" data_type: TYPE_FP32 dims: [ 3 ] use_same_buffer_for_input_output: true } ] '
)
V["sb_state"] = B8 + "sequence_batching { " + _STATE + "}"
V["sb_state_growable"] = (
    B8
    + 'sequence_batching { state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2 ] use_growable_memory: true use_same_buffer_for_input_output: true } ] }'
)
V["sb_state_no_dtype"] = (
    B8 + 'sequence_batching { state [ { input_name: "SI" output_name: "SO" dims: [ 2 ] } ] }'
)
V["sb_state_no_dims"] = (
    B8
    + 'sequence_batching { state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 } ] }'
)
V["sb_state_no_names"] = (
    B8 + "sequence_batching { state [ { data_type: TYPE_INT32 dims: [ 2 ] } ] }"
)
V["sb_state_no_out"] = (
    B8 + 'sequence_batching { state [ { input_name: "SI" data_type: TYPE_INT32 dims: [ 2 ] } ] }'
)
V["sb_state_two_init"] = B8 + (
    'sequence_batching { state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2 ]'
    ' initial_state [ { data_type: TYPE_INT32 dims: [ 2 ] zero_data: true name: "a" }, { data_type: TYPE_INT32 dims: [ 2 ] zero_data: true name: "b" } ] } ] }'
)
V["sb_state_init_noname"] = B8 + (
    'sequence_batching { state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2 ]'
    " initial_state [ { data_type: TYPE_INT32 dims: [ 2 ] zero_data: true } ] } ] }"
)
V["sb_state_init_nodata"] = B8 + (
    'sequence_batching { state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2 ]'
    ' initial_state [ { data_type: TYPE_INT32 dims: [ 2 ] name: "a" } ] } ] }'
)
V["sb_state_init_dtype"] = B8 + (
    'sequence_batching { state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2 ]'
    ' initial_state [ { data_type: TYPE_FP32 dims: [ 2 ] name: "a" zero_data: true } ] } ] }'
)
V["sb_state_init_dims"] = B8 + (
    'sequence_batching { state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2 ]'
    ' initial_state [ { data_type: TYPE_INT32 dims: [ 3 ] name: "a" zero_data: true } ] } ] }'
)
V["sb_state_init_var"] = B8 + (
    'sequence_batching { state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ -1 ]'
    ' initial_state [ { data_type: TYPE_INT32 dims: [ -1 ] name: "a" zero_data: true } ] } ] }'
)
V["sb_state_init_file"] = B8 + (
    'sequence_batching { state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2 ]'
    ' initial_state [ { data_type: TYPE_INT32 dims: [ 2 ] name: "a" data_file: "nofile" } ] } ] }'
)
V["sb_state_dup"] = (
    B8
    + 'sequence_batching { state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2 ] }, { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2 ] } ] }'
)
V["sb_iterative"] = B8 + "sequence_batching { iterative_sequence: true }"
V["sb_iterative_dec"] = (
    B8
    + "sequence_batching { iterative_sequence: true }\nmodel_transaction_policy { decoupled: true }"
)

# ensembles
_EIO = 'input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]\noutput [ { name: "C" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'


def _step(model: str, source: str, target: str, extra: str = "model_version: -1") -> str:
    return (
        f'{{ model_name: "{model}" {extra} input_map {{ key: "X" value: "{source}" }}'
        f' output_map {{ key: "Y" value: "{target}" }} }}'
    )


def _ens(*steps: str, head: str = "", io: str = _EIO, tail: str = "") -> str:
    return f'platform: "ensemble"\n{head}{io}ensemble_scheduling {{ step [ {", ".join(steps)} ] }}\n{tail}'


V["ens_one"] = _ens(_step("plain", "A", "C"))
V["ens_two"] = _ens(_step("plain", "A", "mid"), _step("plain", "mid", "C"))
V["ens_nover"] = _ens(_step("plain", "A", "C", ""))
V["ens_ver1"] = _ens(_step("plain", "A", "C", "model_version: 1"))
V["ens_ver9"] = _ens(_step("plain", "A", "C", "model_version: 9"))
V["ens_ns"] = _ens(_step("plain", "A", "C", 'model_version: -1 model_namespace: "ns"'))
V["ens_noplatform"] = _EIO + "ensemble_scheduling { step [ " + _step("plain", "A", "C") + " ] }"
V["ens_nosched"] = 'platform: "ensemble"\n' + _EIO
V["ens_empty"] = 'platform: "ensemble"\n' + _EIO + "ensemble_scheduling { }"
V["ens_batch"] = _ens(_step("batch8", "A", "C"), head="max_batch_size: 4\n")
V["ens_batch_big"] = _ens(_step("batch8", "A", "C"), head="max_batch_size: 16\n")
V["ens_unknown_model"] = _ens(_step("zzz", "A", "C"))
V["ens_bad_input"] = _ens(
    '{ model_name: "plain" model_version: -1 input_map { key: "Q" value: "A" } output_map { key: "Y" value: "C" } }'
)
V["ens_bad_output"] = _ens(
    '{ model_name: "plain" model_version: -1 input_map { key: "X" value: "A" } output_map { key: "Q" value: "C" } }'
)
V["ens_no_in_map"] = _ens(
    '{ model_name: "plain" model_version: -1 output_map { key: "Y" value: "C" } }'
)
V["ens_no_out_map"] = _ens(
    '{ model_name: "plain" model_version: -1 input_map { key: "X" value: "A" } }'
)
V["ens_no_model"] = _ens(
    '{ model_version: -1 input_map { key: "X" value: "A" } output_map { key: "Y" value: "C" } }'
)
V["ens_unmapped_out"] = _ens(_step("plain", "A", "D"))
V["ens_unused_in"] = _ens(
    _step("plain", "A", "C"),
    io='input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "U" data_type: TYPE_FP32 dims: [ -1 ] } ]\noutput [ { name: "C" data_type: TYPE_FP32 dims: [ -1 ] } ]\n',
)
V["ens_cycle"] = _ens(_step("plain", "b", "a"), _step("plain", "a", "b"), _step("plain", "A", "C"))
V["ens_no_writer"] = _ens(_step("plain", "nowhere", "C"))
V["ens_two_writers"] = _ens(_step("plain", "A", "C"), _step("plain", "A", "C"))
V["ens_write_input"] = _ens(_step("plain", "A", "A"), _step("plain", "A", "C"))
V["ens_dtype"] = _ens(_step("type_int32", "A", "C").replace('"X"', '"I"').replace('"Y"', '"O"'))
V["ens_dtype_mid"] = _ens(
    _step("plain", "A", "mid"),
    _step("type_int32", "mid", "C").replace('"X"', '"I"').replace('"Y"', '"O"'),
)
V["ens_shape"] = _ens(
    _step("plain", "A", "C"),
    io='input [ { name: "A" data_type: TYPE_FP32 dims: [ 2, 2 ] } ]\noutput [ { name: "C" data_type: TYPE_FP32 dims: [ -1 ] } ]\n',
)
V["ens_dead_end"] = _ens(_step("plain", "A", "C"), _step("plain", "A", "unused"))
V["ens_ig"] = _ens(_step("plain", "A", "C"), tail="instance_group [ { count: 2 } ]\n")
V["ens_self"] = _ens(_step("ens_self", "A", "C"))
V["ens_dec"] = _ens(
    _step("decoupled", "A", "C"), tail="model_transaction_policy { decoupled: true }\n"
)
V["ens_dec_unset"] = _ens(_step("decoupled", "A", "C"))
V["ens_dec_false"] = _ens(
    _step("decoupled", "A", "C"), tail="model_transaction_policy { decoupled: false }\n"
)
V["ens_backend"] = 'backend: "python"\n' + _ens(_step("plain", "A", "C"))
V["ens_warm"] = _ens(
    _step("plain", "A", "C"),
    tail='model_warmup [ { name: "w" inputs { key: "A" value { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true } } } ]\n',
)

# everything else
V["decoupled"] = BASE + "model_transaction_policy { decoupled: true }"
V["decoupled_false"] = BASE + "model_transaction_policy { decoupled: false }"
V["decoupled_empty"] = BASE + "model_transaction_policy { }"
V["decoupled_dyn"] = B8 + "dynamic_batching { }\nmodel_transaction_policy { decoupled: true }"
V["params"] = (
    BASE
    + 'parameters { key: "b" value { string_value: "v" } }\nparameters { key: "a" value { string_value: "" } }'
)
V["params_many"] = BASE + "".join(
    f'parameters {{ key: "key{i}" value {{ string_value: "{i}" }} }}\n' for i in (5, 3, 9, 1, 7)
)
V["params_env"] = (
    BASE
    + 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }'
)
V["params_escape"] = (
    BASE
    + 'parameters { key: "k" value { string_value: "a\\"b\\\\ \\n\\t/ é \\001 <&>\' \\342\\200\\250 \\360\\237\\230\\200" } }'
)
V["params_novalue"] = BASE + 'parameters { key: "k" }'
V["metric_tags"] = BASE + 'metric_tags { key: "team" value: "a" }'
V["cc_files"] = BASE + 'cc_model_filenames { key: "7.0" value: "other.py" }'
V["resp_cache"] = BASE + "response_cache { enable: true }"
V["resp_cache_off"] = BASE + "response_cache { enable: false }"
V["resp_cache_dec"] = (
    BASE + "response_cache { enable: true }\nmodel_transaction_policy { decoupled: true }"
)
V["warmup"] = B8 + (
    'model_warmup [ { name: "w1" batch_size: 2 inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 3 ] zero_data: true } } count: 2 },'
    ' { name: "w2" batch_size: 1 inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 3 ] random_data: true } } } ]'
)
V["warmup_file"] = (
    B8
    + 'model_warmup [ { name: "w" batch_size: 1 inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 3 ] input_data_file: "nofile" } } } ]'
)
V["warmup_bad_input"] = (
    B8
    + 'model_warmup [ { name: "w" batch_size: 1 inputs { key: "Q" value { data_type: TYPE_FP32 dims: [ 3 ] zero_data: true } } } ]'
)
V["warmup_noname"] = (
    B8
    + 'model_warmup [ { batch_size: 1 inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 3 ] zero_data: true } } } ]'
)
V["warmup_nodata"] = (
    B8
    + 'model_warmup [ { name: "w" batch_size: 1 inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 3 ] } } } ]'
)
V["warmup_var"] = (
    B8
    + 'model_warmup [ { name: "w" batch_size: 1 inputs { key: "X" value { data_type: TYPE_FP32 dims: [ -1 ] zero_data: true } } } ]'
)
V["warmup_dtype"] = (
    B8
    + 'model_warmup [ { name: "w" batch_size: 1 inputs { key: "X" value { data_type: TYPE_INT32 dims: [ 3 ] zero_data: true } } } ]'
)
V["warmup_big"] = (
    B8
    + 'model_warmup [ { name: "w" batch_size: 20 inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 3 ] zero_data: true } } } ]'
)
V["warmup_batch0"] = (
    B8
    + 'model_warmup [ { name: "w" inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 3 ] zero_data: true } } } ]'
)
V["opt_empty"] = BASE + "optimization { }"
V["opt_priority"] = BASE + "optimization { priority: PRIORITY_MAX }"
V["opt_pinned"] = (
    BASE
    + "optimization { input_pinned_memory { enable: false } output_pinned_memory { enable: false } }"
)
V["opt_pinned_empty"] = BASE + "optimization { input_pinned_memory { } }"
V["opt_gather"] = BASE + "optimization { gather_kernel_buffer_threshold: 5 eager_batching: true }"
V["opt_graph"] = BASE + "optimization { graph { level: 1 } }"
V["opt_cuda"] = B8 + (
    "optimization { cuda { graphs: true busy_wait_events: true output_copy_stream: true graph_spec [ { batch_size: 2 "
    'input { key: "X" value { dim: [ 3, 4 ] } } graph_lower_bound { batch_size: 1 input { key: "X" value { dim: [ 1 ] } } } } ] } }'
)
V["opt_accel"] = BASE + (
    'optimization { execution_accelerators { gpu_execution_accelerator [ { name: "tensorrt" parameters { key: "p" value: "q" } } ]'
    ' cpu_execution_accelerator [ { name: "openvino" } ] } }'
)
V["ops"] = BASE + 'model_operations { op_library_filename: [ "a.so" ] }'
V["ops_empty"] = BASE + "model_operations { }"
V["agents"] = (
    BASE
    + 'model_repository_agents { agents [ { name: "nope" parameters { key: "a" value: "b" } } ] }'
)
V["metrics_hist"] = BASE + (
    'model_metrics { metric_control [ { metric_identifier { family: "nv_inference_first_response_histogram_ms" }'
    " histogram_options { buckets: [ 1, 2, 4.5 ] } } ] }"
)
V["metrics_empty"] = BASE + "model_metrics { }"
V["all_together"] = B8 + (
    "dynamic_batching { preferred_batch_size: [ 2 ] }\n"
    "instance_group [ { count: 2 kind: KIND_CPU } ]\n"
    'metric_tags { key: "team" value: "a" }\n'
    'parameters { key: "k" value { string_value: "v" } }\n'
    "optimization { eager_batching: true }\n"
    "response_cache { enable: false }\n"
    "version_policy { all { } }\n"
    "model_transaction_policy { decoupled: false }\n"
)
V["two_sched"] = B8 + "dynamic_batching { }\nsequence_batching { }"
V["bad_backend"] = 'backend: "nope"\n' + IO
V["bad_name"] = 'name: "other"\n' + BASE

# text that does not parse
V["parse_brace"] = PY + "input [ {\n"
V["parse_unknown_field"] = PY + "nonsense: 3\n" + IO
V["parse_unknown_nested"] = PY + 'input [ { name: "X" data_type: TYPE_FP32 dim: [ 1 ] } ]\n'
V["parse_unknown_enum"] = PY + 'input [ { name: "X" data_type: TYPE_FLOAT dims: [ 1 ] } ]\n'
V["parse_enum_number"] = (
    PY
    + 'input [ { name: "X" data_type: 11 dims: [ 1 ] } ]\noutput [ { name: "Y" data_type: 11 dims: [ 1 ] } ]\n'
)
V["parse_enum_string"] = PY + 'input [ { name: "X" data_type: "TYPE_FP32" dims: [ 1 ] } ]\n'
V["parse_string_number"] = PY + 'max_batch_size: "4"\n' + IO
V["parse_float_int"] = PY + "max_batch_size: 4.5\n" + IO
V["parse_overflow"] = PY + "max_batch_size: 4294967296\n" + IO
V["parse_twice"] = PY + "max_batch_size: 4\nmax_batch_size: 8\n" + IO
V["parse_noquote"] = "backend: python\n" + IO
V["parse_open_quote"] = 'backend: "python\n' + IO
V["parse_comma"] = PY + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1, ] } ]\n'
V["parse_missing_comma"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } { name: "Z" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
)
V["parse_json"] = '{ "backend": "python" }\n'
V["parse_colon_brace"] = (
    PY
    + "input: [ { name: \"X\", data_type: TYPE_FP32; dims: 1 dims: 2 } ]\noutput: { name: 'Y' data_type: TYPE_FP32 dims: [ 1 ] } # note\n"
)
V["parse_no_colon"] = 'backend "python"\n' + IO
V["parse_bool_int"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] optional: 1 } ]\n'
    + 'output { name: "Y" data_type: TYPE_FP32 dims: 1 }'
)
V["parse_bool_caps"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] optional: True } ]\n'
    + 'output { name: "Y" data_type: TYPE_FP32 dims: 1 }'
)
V["parse_concat"] = 'backend: "pyt" "hon"\n' + IO
V["parse_angle"] = (
    PY
    + 'input < name: "X" data_type: TYPE_FP32 dims: [ 1 ] >\noutput { name: "Y" data_type: TYPE_FP32 dims: 0x10 }'
)
V["parse_new_field"] = (
    'platform: "ensemble"\n'
    + _EIO
    + "ensemble_scheduling { max_inflight_requests: 4 step [ "
    + _step("plain", "A", "C")
    + " ] }"
)
V["parse_two_strategies"] = (
    B8 + "sequence_batching { direct { } oldest { max_candidate_sequences: 4 } }"
)
V["parse_two_policies"] = BASE + "version_policy { all { } latest { num_versions: 1 } }"

# which fault is named first where there are several, and corners
V["sb_state_named_more"] = B8 + (
    'sequence_batching { state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2, 3 ]'
    ' initial_state [ { data_type: TYPE_INT32 dims: [ 2 ] name: "a" zero_data: true } ] } ] }'
)
V["sb_state_init_zero_elems"] = B8 + (
    'sequence_batching { state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2 ]'
    ' initial_state [ { data_type: TYPE_INT32 name: "a" zero_data: true } ] } ] }'
)
V["sb_ready_bool"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true, true ] } ] } ] }'
)
V["sb_two_ready"] = (
    B8
    + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } ] }, { name: "T" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } ] } ] }'
)
V["sb_direct_neg"] = B8 + "sequence_batching { direct { minimum_slot_utilization: -0.5 } }"
V["sb_order_1"] = (
    B8
    + 'sequence_batching { direct { minimum_slot_utilization: 2 } control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START } ] } ] }'
)
V["sb_order_2"] = (
    B8
    + 'sequence_batching { control_input [ { name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID } ] }, { name: "S" control [ { kind: CONTROL_SEQUENCE_READY } ] }, { name: "T" control [ { kind: CONTROL_SEQUENCE_END } ] } ] }'
)
V["sb_order_3"] = (
    B8
    + 'sequence_batching { oldest { preferred_batch_size: [ 16 ] } control_input [ { name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID } ] } ] }'
)
V["db_order_1"] = (
    B8
    + "dynamic_batching { preferred_batch_size: [ 16 ] priority_levels: 2 preserve_ordering: true }"
)
V["db_order_2"] = B8 + "dynamic_batching { priority_levels: 2 preserve_ordering: true }"
V["db_order_3"] = (
    B8 + "dynamic_batching { priority_levels: 2 priority_queue_policy { key: 9 value { } } }"
)
V["db_order_4"] = B8 + "dynamic_batching { preferred_batch_size: [ 16, 0 ] }"
V["db_order_one"] = (
    B8 + "dynamic_batching { preserve_ordering: true priority_levels: 1 default_priority_level: 1 }"
)
V["stage_poll_first"] = (
    'backend: "python"\nmax_batch_size: 2\ninput [ { name: "X" dims: [ 1 ] } ]\ndynamic_batching { preferred_batch_size: [ 16 ] }'
)
V["stage_mbs_db"] = (
    PY + "max_batch_size: -1\n" + IO + "dynamic_batching { preferred_batch_size: [ 16 ] }"
)
V["stage_ig_io"] = PY + 'input [ { name: "X" dims: [ 1 ] } ]\ninstance_group [ { kind: KIND_GPU } ]'
V["stage_in_out"] = PY + 'output [ { name: "Y" dims: [ 1 ] } ]\ninput [ { name: "X" dims: [ 1 ] } ]'
V["stage_in_name_type"] = PY + "input [ { } ]"
V["stage_in_type_dims"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 format: FORMAT_NHWC dims: [ 0 ] is_shape_tensor: true } ]'
)
V["stage_in_fmt_reshape"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 format: FORMAT_NHWC dims: [ 2 ] reshape { shape: [ 5 ] } } ]'
)
V["stage_in_shape_nonlin"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 2 ] is_shape_tensor: true is_non_linear_format_io: true reshape { shape: [ 5 ] } } ]'
)
V["stage_in_reshape_shape"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 2 ] is_shape_tensor: true reshape { shape: [ 5 ] } } ]'
)
V["stage_io_bi"] = (
    B8
    + 'input [ { name: "Q" dims: [ 1 ] } ] batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: [ "N" ] data_type: TYPE_FP32 source_input: [ "Z" ] } ]'
)
V["stage_bi_order"] = (
    B8
    + 'batch_input [ { kind: BATCH_ELEMENT_COUNT data_type: TYPE_INT64 source_input: [ "Z", "X" ] } ]'
)
V["stage_bi_order2"] = (
    B8 + 'batch_input [ { kind: BATCH_ELEMENT_COUNT data_type: TYPE_INT64 source_input: [ "Z" ] } ]'
)
V["stage_bo_order"] = B8 + 'batch_output [ { target_name: [ "Z" ] source_input: [ "Q", "X" ] } ]'
V["stage_bo_order2"] = B8 + 'batch_output [ { target_name: [ "Z" ] source_input: [ "Q" ] } ]'
V["stage_state_ig"] = B8 + (
    "instance_group [ { kind: KIND_GPU } ]\n"
    'sequence_batching { state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2 ]'
    " initial_state [ { data_type: TYPE_INT32 dims: [ 2 ] zero_data: true } ] } ] }"
)
V["io_reshape_empty_var"] = (
    PY
    + "max_batch_size: 4\n"
    + (
        'input [ { name: "A" data_type: TYPE_FP32 dims: [ 2 ] reshape { shape: [ ] } } ]\n'
        'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
    )
)
V["io_reshape_var_ok"] = (
    PY
    + "max_batch_size: 4\n"
    + (
        'input [ { name: "A" data_type: TYPE_FP32 dims: [ 2, -1, 6 ] reshape { shape: [ 2, -1, 3, 2 ] } } ]\n'
        'output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1, 2, 2 ] reshape { shape: [ -1, 4 ] } } ]\n'
    )
)
V["io_reshape_out_empty"] = PY + (
    'input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
    'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } } ]\n'
)
V["ig_gpu_named"] = BASE + 'instance_group [ { name: "g" kind: KIND_GPU gpus: [ 3 ] } ]'
V["ig_cpu_profile"] = BASE + 'instance_group [ { kind: KIND_CPU gpus: [ 0 ] profile: [ "a" ] } ]'
V["ig_neg_gpu"] = BASE + "instance_group [ { kind: KIND_GPU count: -2 } ]"
V["ig_rate_neg"] = (
    BASE + 'instance_group [ { rate_limiter { resources [ { name: "R" count: 0 } ] } } ]'
)
V["ens_cycle_real"] = _ens(
    _step("plain", "b", "a"),
    _step("plain", "a", "b"),
    '{ model_name: "type_int32" model_version: -1 input_map { key: "I" value: "A" } output_map { key: "O" value: "C" } }',
)
V["ens_loop"] = _ens(
    '{ model_name: "two_in" model_version: -1 input_map { key: "X" value: "A" } input_map { key: "Z" value: "b" } output_map { key: "Y" value: "c" } }',
    _step("plain", "c", "b"),
    _step("plain", "c", "C"),
)
V["two_in"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "Z" data_type: TYPE_FP32 dims: [ -1 ] } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
)
V["ens_missing_input"] = _ens(
    '{ model_name: "two_in" model_version: -1 input_map { key: "X" value: "A" } output_map { key: "Y" value: "C" } }'
)
V["ens_two_unknown"] = _ens(_step("yyy", "A", "mid"), _step("zzz", "mid", "C"))
V["ens_no_io"] = (
    'platform: "ensemble"\nensemble_scheduling { step [ ' + _step("plain", "A", "C") + " ] }"
)
V["ens_of_ens"] = _ens(
    '{ model_name: "ens_one" model_version: -1 input_map { key: "A" value: "A" } output_map { key: "C" value: "C" } }'
)
V["ens_batch_nobatch"] = _ens(_step("batch8", "A", "C"))
V["ens_nobatch_batch"] = _ens(_step("plain", "A", "C"), head="max_batch_size: 4\n")
V["ens_optional"] = _ens(
    '{ model_name: "opt_in" model_version: -1 input_map { key: "X" value: "A" } output_map { key: "Y" value: "C" } }'
)
V["opt_in"] = (
    PY
    + 'input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "Z" data_type: TYPE_FP32 dims: [ -1 ] optional: true } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
)
V["ens_out_dtype"] = _ens(
    _step("plain", "A", "C"),
    io='input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]\noutput [ { name: "C" data_type: TYPE_INT32 dims: [ -1 ] } ]\n',
)
V["ens_no_dtype"] = _ens(
    _step("plain", "A", "C"),
    io='input [ { name: "A" dims: [ -1 ] } ]\noutput [ { name: "C" data_type: TYPE_FP32 dims: [ -1 ] } ]\n',
)
V["ens_shape_fix"] = _ens(
    _step("plain", "A", "C"),
    io='input [ { name: "A" data_type: TYPE_FP32 dims: [ 4 ] } ]\noutput [ { name: "C" data_type: TYPE_FP32 dims: [ 3 ] } ]\n',
)
V["ens_batch_shape"] = _ens(
    _step("batch8", "A", "C"),
    io='input [ { name: "A" data_type: TYPE_FP32 dims: [ -1, -1 ] } ]\noutput [ { name: "C" data_type: TYPE_FP32 dims: [ -1, 4 ] } ]\n',
)
V["ens_cache"] = _ens(_step("plain", "A", "C"), tail="response_cache { enable: true }\n")
V["ens_params"] = _ens(
    _step("plain", "A", "C"),
    tail='parameters { key: "a" value { string_value: "b" } }\nversion_policy { all { } }\n',
)
V["ens_python_file"] = _ens(_step("plain", "A", "C"), tail='default_model_filename: "x"\n')
V["ens_dyn"] = _ens(_step("plain", "A", "C"), head="", tail="dynamic_batching { }\n")
V["cache_seq"] = B8 + "sequence_batching { }\nresponse_cache { enable: true }"
V["platform_tf"] = 'platform: "tensorflow_savedmodel"\n' + IO
V["platform_only"] = 'platform: "python"\n' + IO
V["runtime_bad"] = BASE + 'runtime: "nope.so"\n'
V["dec_seq"] = B8 + "sequence_batching { }\nmodel_transaction_policy { decoupled: true }"
V["numbers"] = B8 + (
    'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0.0001, 1e-7 ] } ] },'
    ' { name: "E" control [ { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 2.5e30, 1000000 ] } ] },'
    ' { name: "R" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 123456.7, 0.00001234 ] } ] } ] }'
)
V["numbers_2"] = B8 + (
    'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 1e20, 1e22 ] } ] },'
    ' { name: "E" control [ { kind: CONTROL_SEQUENCE_END fp32_false_true: [ -0.0, -1e-30 ] } ] },'
    ' { name: "R" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0.33333334, 7.0e-6 ] } ] } ] }'
)
