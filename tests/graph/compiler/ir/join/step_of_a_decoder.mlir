// run cpu: fuse, join
// Rotated queries and keys, and both writes, are one kernel.
func.func @main(%kc: bf16[c, 4, 2, 8], %vc: bf16[c, 4, 2, 8], %q: f32[t, 6, 8], %k: f32[t, 2, 8], %v: bf16[t, 2, 8], %cos: f32[t, 1, 4], %sin: f32[t, 1, 4], %o: i64[b + 1], %l: i64[b], %w: i32[b, m]) -> (bf16[t, 6, 8], bf16[c, 4, 2, 8], bf16[c, 4, 2, 8]) attributes {heddle.symbols = {b = [1, 9], c = [1, 9], m = [1, 9], t = [1, 9]}} {
  %0 = rope(%q, %cos, %sin) {interleaved = false} : (f32[t, 6, 8], f32[t, 1, 4], f32[t, 1, 4]) -> f32[t, 6, 8]
  %1 = cast(%0) {dtype = bf16} : (f32[t, 6, 8]) -> bf16[t, 6, 8]
  %2 = rope(%k, %cos, %sin) {interleaved = false} : (f32[t, 2, 8], f32[t, 1, 4], f32[t, 1, 4]) -> f32[t, 2, 8]
  %3 = cast(%2) {dtype = bf16} : (f32[t, 2, 8]) -> bf16[t, 2, 8]
  %4 = paged_write(%kc, %3, %o, %l, %w) : (bf16[c, 4, 2, 8], bf16[t, 2, 8], i64[b + 1], i64[b], i32[b, m]) -> bf16[c, 4, 2, 8]
  %5 = paged_write(%vc, %v, %o, %l, %w) : (bf16[c, 4, 2, 8], bf16[t, 2, 8], i64[b + 1], i64[b], i32[b, m]) -> bf16[c, 4, 2, 8]
  return %1, %4, %5 : bf16[t, 6, 8], bf16[c, 4, 2, 8], bf16[c, 4, 2, 8]
}

// gives
module {
  func.func @main(%arg0: bf16[c, 4, 2, 8], %arg1: bf16[c, 4, 2, 8], %arg2: f32[t, 6, 8], %arg3: f32[t, 2, 8], %arg4: bf16[t, 2, 8], %arg5: f32[t, 1, 4], %arg6: f32[t, 1, 4], %arg7: i64[b + 1], %arg8: i64[b], %arg9: i32[b, m]) -> (bf16[t, 6, 8], bf16[c, 4, 2, 8], bf16[c, 4, 2, 8]) attributes {heddle.symbols = {b = [1, 9], c = [1, 9], m = [1, 9], t = [1, 9]}} {
    %0:3 = fused(%arg0, %arg1, %arg3, %arg4, %arg2, %arg5, %arg6, %arg7, %arg8, %arg9) ({
    ^bb0(%arg10: bf16[c, 4, 2, 8], %arg11: bf16[c, 4, 2, 8], %arg12: f32[t, 2, 8], %arg13: bf16[t, 2, 8], %arg14: f32[t, 6, 8], %arg15: f32[t, 1, 4], %arg16: f32[t, 1, 4], %arg17: i64[b + 1], %arg18: i64[b], %arg19: i32[b, m]):
      %1 = rope(%arg12, %arg15, %arg16) {interleaved = false} : (f32[t, 2, 8], f32[t, 1, 4], f32[t, 1, 4]) -> f32[t, 2, 8]
      %2 = cast(%1) {dtype = bf16} : (f32[t, 2, 8]) -> bf16[t, 2, 8]
      %3 = rope(%arg14, %arg15, %arg16) {interleaved = false} : (f32[t, 6, 8], f32[t, 1, 4], f32[t, 1, 4]) -> f32[t, 6, 8]
      %4 = cast(%3) {dtype = bf16} : (f32[t, 6, 8]) -> bf16[t, 6, 8]
      %5 = paged_write(%arg10, %2, %arg17, %arg18, %arg19) : (bf16[c, 4, 2, 8], bf16[t, 2, 8], i64[b + 1], i64[b], i32[b, m]) -> bf16[c, 4, 2, 8]
      %6 = paged_write(%arg11, %arg13, %arg17, %arg18, %arg19) : (bf16[c, 4, 2, 8], bf16[t, 2, 8], i64[b + 1], i64[b], i32[b, m]) -> bf16[c, 4, 2, 8]
      yield(%5, %6, %4) : (bf16[c, 4, 2, 8], bf16[c, 4, 2, 8], bf16[t, 6, 8]) -> ()
    }) : (bf16[c, 4, 2, 8], bf16[c, 4, 2, 8], f32[t, 2, 8], bf16[t, 2, 8], f32[t, 6, 8], f32[t, 1, 4], f32[t, 1, 4], i64[b + 1], i64[b], i32[b, m]) -> (bf16[c, 4, 2, 8], bf16[c, 4, 2, 8], bf16[t, 6, 8])
    return %0#2, %0#0, %0#1 : bf16[t, 6, 8], bf16[c, 4, 2, 8], bf16[c, 4, 2, 8]
  }
}
