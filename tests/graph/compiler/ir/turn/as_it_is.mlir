// run cuda: turn, fuse
// float32 without TF32, few rows by what is computed, and what lies along k are left alone.
func.func @main(%x: f32[n, 8], %q: i8[n, 8], %r: i8[8, 4]) -> (f32[n, 4], i32[n, 4], i32[n, 4]) attributes {heddle.symbols = {n = [1, 9]}} {
  %w = weight() {name = "w"} : () -> f32[8, 4]
  %v = weight() {name = "v"} : () -> i8[4, 8]
  %t = transpose(%v) {permutation = array<i64: 1, 0>} : (i8[4, 8]) -> i8[8, 4]
  %a = matmul(%x, %w) {precision = "full"} : (f32[n, 8], f32[8, 4]) -> f32[n, 4]
  %b = integer_matmul(%q, %r) : (i8[n, 8], i8[8, 4]) -> i32[n, 4]
  %c = integer_matmul(%q, %t) : (i8[n, 8], i8[8, 4]) -> i32[n, 4]
  return %a, %b, %c : f32[n, 4], i32[n, 4], i32[n, 4]
}

// gives
module {
  func.func @main(%arg0: f32[n, 8], %arg1: i8[n, 8], %arg2: i8[8, 4]) -> (f32[n, 4], i32[n, 4], i32[n, 4]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "w"} : () -> f32[8, 4]
    %1 = weight() {name = "v"} : () -> i8[4, 8]
    %2 = fused(%arg0, %0) ({
    ^bb0(%arg3: f32[n, 8], %arg4: f32[8, 4]):
      %5 = matmul(%arg3, %arg4) {precision = "full"} : (f32[n, 8], f32[8, 4]) -> f32[n, 4]
      yield(%5) : (f32[n, 4]) -> ()
    }) : (f32[n, 8], f32[8, 4]) -> f32[n, 4]
    %3 = fused(%arg1, %arg2) ({
    ^bb0(%arg3: i8[n, 8], %arg4: i8[8, 4]):
      %5 = integer_matmul(%arg3, %arg4) : (i8[n, 8], i8[8, 4]) -> i32[n, 4]
      yield(%5) : (i32[n, 4]) -> ()
    }) : (i8[n, 8], i8[8, 4]) -> i32[n, 4]
    %4 = fused(%arg1, %1) ({
    ^bb0(%arg3: i8[n, 8], %arg4: i8[4, 8]):
      %5 = transpose(%arg4) {permutation = array<i64: 1, 0>} : (i8[4, 8]) -> i8[8, 4]
      %6 = integer_matmul(%arg3, %5) : (i8[n, 8], i8[8, 4]) -> i32[n, 4]
      yield(%6) : (i32[n, 4]) -> ()
    }) : (i8[n, 8], i8[4, 8]) -> i32[n, 4]
    return %2, %3, %4 : f32[n, 4], i32[n, 4], i32[n, 4]
  }
}
