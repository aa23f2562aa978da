// run cpu: pack
// int8 is raised by 128 to uint8, once for both products, and 128 times b's columns are taken off.
func.func @main(%x: i8[n, 10], %u: ui8[n, 10]) -> (i32[n, 40], i32[n, 40], i32[n, 40]) attributes {heddle.symbols = {n = [1, 9]}} {
  %w = weight() {name = "w"} : () -> i8[40, 10]
  %v = weight() {name = "v"} : () -> i8[10, 40]
  %t = transpose(%w) {permutation = array<i64: 1, 0>} : (i8[40, 10]) -> i8[10, 40]
  %y = integer_matmul(%x, %t) : (i8[n, 10], i8[10, 40]) -> i32[n, 40]
  %z = integer_matmul(%x, %v) : (i8[n, 10], i8[10, 40]) -> i32[n, 40]
  %q = integer_matmul(%u, %v) : (ui8[n, 10], i8[10, 40]) -> i32[n, 40]
  return %y, %z, %q : i32[n, 40], i32[n, 40], i32[n, 40]
}

// gives
module {
  func.func @main(%arg0: i8[n, 10], %arg1: ui8[n, 10]) -> (i32[n, 40], i32[n, 40], i32[n, 40]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "w"} : () -> i8[40, 10]
    %1 = weight() {name = "v"} : () -> i8[10, 40]
    %2 = pack_b(%0) {group = 4 : i64, transposed = true} : (i8[40, 10]) -> i8[2, 3, 32, 4]
    %3 = cast(%arg0) {dtype = ui8} : (i8[n, 10]) -> ui8[n, 10]
    %4 = constant() {value = dense<128> : tensor<ui8>} : () -> ui8[]
    %5 = add(%3, %4) : (ui8[n, 10], ui8[]) -> ui8[n, 10]
    %6 = integer_matmul_packed(%5, %2) {columns = "40"} : (ui8[n, 10], i8[2, 3, 32, 4]) -> i32[n, 40]
    %7 = cast(%0) {dtype = i32} : (i8[40, 10]) -> i32[40, 10]
    %8 = sum(%7) {axis = 1 : i64} : (i32[40, 10]) -> i32[40, 1]
    %9 = reshape(%8) {shape = ["1", "40"]} : (i32[40, 1]) -> i32[1, 40]
    %10 = constant() {value = dense<128> : tensor<i32>} : () -> i32[]
    %11 = mul(%9, %10) : (i32[1, 40], i32[]) -> i32[1, 40]
    %12 = sub(%6, %11) : (i32[n, 40], i32[1, 40]) -> i32[n, 40]
    %13 = pack_b(%1) {group = 4 : i64, transposed = false} : (i8[10, 40]) -> i8[2, 3, 32, 4]
    %14 = integer_matmul_packed(%5, %13) {columns = "40"} : (ui8[n, 10], i8[2, 3, 32, 4]) -> i32[n, 40]
    %15 = cast(%1) {dtype = i32} : (i8[10, 40]) -> i32[10, 40]
    %16 = sum(%15) {axis = 0 : i64} : (i32[10, 40]) -> i32[1, 40]
    %17 = mul(%16, %10) : (i32[1, 40], i32[]) -> i32[1, 40]
    %18 = sub(%14, %17) : (i32[n, 40], i32[1, 40]) -> i32[n, 40]
    %19 = integer_matmul_packed(%arg1, %13) {columns = "40"} : (ui8[n, 10], i8[2, 3, 32, 4]) -> i32[n, 40]
    return %12, %18, %19 : i32[n, 40], i32[n, 40], i32[n, 40]
  }
}
