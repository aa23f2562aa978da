// run cpu: fuse, join
// What is written as values has been made of the keys.
func.func @main(%kc: f32[c, 4, 2, 8], %vc: f32[c, 4, 2, 8], %q: f32[t, 2, 8], %k: f32[t, 2, 8], %v: f32[t, 2, 8], %cos: f32[t, 1, 4], %sin: f32[t, 1, 4], %o: i64[b + 1], %l: i64[b], %w: i32[b, m]) -> (f32[t, 2, 8], f32[c, 4, 2, 8], f32[c, 4, 2, 8]) attributes {heddle.symbols = {b = [1, 9], c = [1, 9], m = [1, 9], t = [1, 9]}} {
  %0 = rope(%q, %cos, %sin) {interleaved = false} : (f32[t, 2, 8], f32[t, 1, 4], f32[t, 1, 4]) -> f32[t, 2, 8]
  %2 = rope(%k, %cos, %sin) {interleaved = false} : (f32[t, 2, 8], f32[t, 1, 4], f32[t, 1, 4]) -> f32[t, 2, 8]
  %4 = paged_write(%kc, %2, %o, %l, %w) : (f32[c, 4, 2, 8], f32[t, 2, 8], i64[b + 1], i64[b], i32[b, m]) -> f32[c, 4, 2, 8]
  %x = paged_attention(%0, %4, %vc, %o, %l, %w) {causal = true, scale = 1.0 : f64, softcap = 0.000000e+00 : f64, value_size = 0 : i64, window = 0 : i64} : (f32[t, 2, 8], f32[c, 4, 2, 8], f32[c, 4, 2, 8], i64[b + 1], i64[b], i32[b, m]) -> f32[t, 2, 8]
  %5 = paged_write(%vc, %x, %o, %l, %w) : (f32[c, 4, 2, 8], f32[t, 2, 8], i64[b + 1], i64[b], i32[b, m]) -> f32[c, 4, 2, 8]
  return %0, %4, %5 : f32[t, 2, 8], f32[c, 4, 2, 8], f32[c, 4, 2, 8]
}

// gives
module {
  func.func @main(%arg0: f32[c, 4, 2, 8], %arg1: f32[c, 4, 2, 8], %arg2: f32[t, 2, 8], %arg3: f32[t, 2, 8], %arg4: f32[t, 2, 8], %arg5: f32[t, 1, 4], %arg6: f32[t, 1, 4], %arg7: i64[b + 1], %arg8: i64[b], %arg9: i32[b, m]) -> (f32[t, 2, 8], f32[c, 4, 2, 8], f32[c, 4, 2, 8]) attributes {heddle.symbols = {b = [1, 9], c = [1, 9], m = [1, 9], t = [1, 9]}} {
    %0 = fused(%arg2, %arg5, %arg6) ({
    ^bb0(%arg10: f32[t, 2, 8], %arg11: f32[t, 1, 4], %arg12: f32[t, 1, 4]):
      %5 = rope(%arg10, %arg11, %arg12) {interleaved = false} : (f32[t, 2, 8], f32[t, 1, 4], f32[t, 1, 4]) -> f32[t, 2, 8]
      yield(%5) : (f32[t, 2, 8]) -> ()
    }) : (f32[t, 2, 8], f32[t, 1, 4], f32[t, 1, 4]) -> f32[t, 2, 8]
    %1 = fused(%arg3, %arg5, %arg6) ({
    ^bb0(%arg10: f32[t, 2, 8], %arg11: f32[t, 1, 4], %arg12: f32[t, 1, 4]):
      %5 = rope(%arg10, %arg11, %arg12) {interleaved = false} : (f32[t, 2, 8], f32[t, 1, 4], f32[t, 1, 4]) -> f32[t, 2, 8]
      yield(%5) : (f32[t, 2, 8]) -> ()
    }) : (f32[t, 2, 8], f32[t, 1, 4], f32[t, 1, 4]) -> f32[t, 2, 8]
    %2 = fused(%arg0, %1, %arg7, %arg8, %arg9) ({
    ^bb0(%arg10: f32[c, 4, 2, 8], %arg11: f32[t, 2, 8], %arg12: i64[b + 1], %arg13: i64[b], %arg14: i32[b, m]):
      %5 = paged_write(%arg10, %arg11, %arg12, %arg13, %arg14) : (f32[c, 4, 2, 8], f32[t, 2, 8], i64[b + 1], i64[b], i32[b, m]) -> f32[c, 4, 2, 8]
      yield(%5) : (f32[c, 4, 2, 8]) -> ()
    }) : (f32[c, 4, 2, 8], f32[t, 2, 8], i64[b + 1], i64[b], i32[b, m]) -> f32[c, 4, 2, 8]
    %3 = fused(%0, %2, %arg1, %arg7, %arg8, %arg9) ({
    ^bb0(%arg10: f32[t, 2, 8], %arg11: f32[c, 4, 2, 8], %arg12: f32[c, 4, 2, 8], %arg13: i64[b + 1], %arg14: i64[b], %arg15: i32[b, m]):
      %5 = paged_attention(%arg10, %arg11, %arg12, %arg13, %arg14, %arg15) {causal = true, scale = 1.000000e+00 : f64, softcap = 0.000000e+00 : f64, value_size = 0 : i64, window = 0 : i64} : (f32[t, 2, 8], f32[c, 4, 2, 8], f32[c, 4, 2, 8], i64[b + 1], i64[b], i32[b, m]) -> f32[t, 2, 8]
      yield(%5) : (f32[t, 2, 8]) -> ()
    }) : (f32[t, 2, 8], f32[c, 4, 2, 8], f32[c, 4, 2, 8], i64[b + 1], i64[b], i32[b, m]) -> f32[t, 2, 8]
    %4 = fused(%arg1, %3, %arg7, %arg8, %arg9) ({
    ^bb0(%arg10: f32[c, 4, 2, 8], %arg11: f32[t, 2, 8], %arg12: i64[b + 1], %arg13: i64[b], %arg14: i32[b, m]):
      %5 = paged_write(%arg10, %arg11, %arg12, %arg13, %arg14) : (f32[c, 4, 2, 8], f32[t, 2, 8], i64[b + 1], i64[b], i32[b, m]) -> f32[c, 4, 2, 8]
      yield(%5) : (f32[c, 4, 2, 8]) -> ()
    }) : (f32[c, 4, 2, 8], f32[t, 2, 8], i64[b + 1], i64[b], i32[b, m]) -> f32[c, 4, 2, 8]
    return %0, %2, %4 : f32[t, 2, 8], f32[c, 4, 2, 8], f32[c, 4, 2, 8]
  }
}
