// run cpu: pack, fuse
// Queries, keys and values are products of one left side: one kernel, each with its own bias. The
// product of z is not: it has another left side. Nor is that which needs the queries.
func.func @main(%x: f32[n, 8], %z: f32[n, 8]) -> (f32[n, 8], f32[n, 8], f32[n, 8], f32[n, 8], f32[n, 8]) attributes {heddle.symbols = {n = [1, 9]}} {
  %wq = weight() {name = "q"} : () -> f32[8, 8]
  %wk = weight() {name = "k"} : () -> f32[8, 8]
  %wv = weight() {name = "v"} : () -> f32[8, 8]
  %b = weight() {name = "b"} : () -> f32[8]
  %q = matmul(%x, %wq) {precision = "full"} : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
  %qb = add(%q, %b) : (f32[n, 8], f32[8]) -> f32[n, 8]
  %other = matmul(%z, %wq) {precision = "full"} : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
  %k = matmul(%x, %wk) {precision = "full"} : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
  %kg = gelu(%k) {approximate = "none"} : (f32[n, 8]) -> f32[n, 8]
  %s = softmax(%qb) {axis = 1 : i64} : (f32[n, 8]) -> f32[n, 8]
  %late = matmul(%x, %wv) {precision = "full"} : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
  %sum = add(%late, %s) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
  return %qb, %kg, %other, %s, %sum : f32[n, 8], f32[n, 8], f32[n, 8], f32[n, 8], f32[n, 8]
}
// gives
module {
  func.func @main(%arg0: f32[n, 8], %arg1: f32[n, 8]) -> (f32[n, 8], f32[n, 8], f32[n, 8], f32[n, 8], f32[n, 8]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "q"} : () -> f32[8, 8]
    %1 = weight() {name = "k"} : () -> f32[8, 8]
    %2 = weight() {name = "v"} : () -> f32[8, 8]
    %3 = weight() {name = "b"} : () -> f32[8]
    %4 = fused(%0) ({
    ^bb0(%arg2: f32[8, 8]):
      %12 = pack_b(%arg2) {group = 1 : i64, transposed = false} : (f32[8, 8]) -> f32[1, 8, 32]
      yield(%12) : (f32[1, 8, 32]) -> ()
    }) : (f32[8, 8]) -> f32[1, 8, 32]
    %5 = fused(%0) ({
    ^bb0(%arg2: f32[8, 8]):
      %12 = transpose(%arg2) {permutation = array<i64: 1, 0>} : (f32[8, 8]) -> f32[8, 8]
      yield(%12) : (f32[8, 8]) -> ()
    }) : (f32[8, 8]) -> f32[8, 8]
    %6 = fused(%arg1, %5) ({
    ^bb0(%arg2: f32[n, 8], %arg3: f32[8, 8]):
      %12 = transpose(%arg3) {permutation = array<i64: 1, 0>} : (f32[8, 8]) -> f32[8, 8]
      %13 = matmul(%arg2, %12) {precision = "full"} : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
      yield(%13) : (f32[n, 8]) -> ()
    }) : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
    %7 = fused(%1) ({
    ^bb0(%arg2: f32[8, 8]):
      %12 = pack_b(%arg2) {group = 1 : i64, transposed = false} : (f32[8, 8]) -> f32[1, 8, 32]
      yield(%12) : (f32[1, 8, 32]) -> ()
    }) : (f32[8, 8]) -> f32[1, 8, 32]
    %8:2 = fused(%arg0, %4, %3, %7) ({
    ^bb0(%arg2: f32[n, 8], %arg3: f32[1, 8, 32], %arg4: f32[8], %arg5: f32[1, 8, 32]):
      %12 = matmul_packed(%arg2, %arg3) {columns = "8"} : (f32[n, 8], f32[1, 8, 32]) -> f32[n, 8]
      %13 = add(%12, %arg4) : (f32[n, 8], f32[8]) -> f32[n, 8]
      %14 = matmul_packed(%arg2, %arg5) {columns = "8"} : (f32[n, 8], f32[1, 8, 32]) -> f32[n, 8]
      %15 = gelu(%14) {approximate = "none"} : (f32[n, 8]) -> f32[n, 8]
      yield(%13, %15) : (f32[n, 8], f32[n, 8]) -> ()
    }) : (f32[n, 8], f32[1, 8, 32], f32[8], f32[1, 8, 32]) -> (f32[n, 8], f32[n, 8])
    %9 = fused(%8#0) ({
    ^bb0(%arg2: f32[n, 8]):
      %12 = softmax(%arg2) {axis = 1 : i64} : (f32[n, 8]) -> f32[n, 8]
      yield(%12) : (f32[n, 8]) -> ()
    }) : (f32[n, 8]) -> f32[n, 8]
    %10 = fused(%2) ({
    ^bb0(%arg2: f32[8, 8]):
      %12 = pack_b(%arg2) {group = 1 : i64, transposed = false} : (f32[8, 8]) -> f32[1, 8, 32]
      yield(%12) : (f32[1, 8, 32]) -> ()
    }) : (f32[8, 8]) -> f32[1, 8, 32]
    %11 = fused(%arg0, %10, %9) ({
    ^bb0(%arg2: f32[n, 8], %arg3: f32[1, 8, 32], %arg4: f32[n, 8]):
      %12 = matmul_packed(%arg2, %arg3) {columns = "8"} : (f32[n, 8], f32[1, 8, 32]) -> f32[n, 8]
      %13 = add(%12, %arg4) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
      yield(%13) : (f32[n, 8]) -> ()
    }) : (f32[n, 8], f32[1, 8, 32], f32[n, 8]) -> f32[n, 8]
    return %8#0, %8#1, %6, %9, %11 : f32[n, 8], f32[n, 8], f32[n, 8], f32[n, 8], f32[n, 8]
  }
}
